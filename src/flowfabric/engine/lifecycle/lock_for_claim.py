"""One execution is locked for a claim by id; and the reasons why such a claim is refused."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.errors import (
    ActiveAttemptExists,
    EngineError,
    ExecutionNotActive,
    ExecutionNotLeaseable,
    LeaseConflict,
    NotFound,
    ValidationError,
    invalid_input,
)
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.states import (
    AttemptState,
    EligibilityState,
    LaneState,
    LifecyclePhase,
    OwnershipState,
)

LOCK_FOR_CLAIM: Final[LiteralString] = """
-- lifecycle.lock_for_claim
SELECT e.lifecycle_phase, e.ownership_state, e.eligibility_state, e.terminal_outcome,
       e.attempt_state, e.public_state, e.attempt_index, e.lease_epoch,
       greatest(e.lease_reclaim_count, 0) AS lease_reclaim_count,
       coalesce(e.lease_expires_at_ms <= ff.now_ms(), false) AS lease_expired,
       coalesce(e.deadline_at_ms <= ff.now_ms(), false) AS past_deadline,
       ff.reclaim_cap(body.policy) AS reclaim_cap, route.lane_id,
       coalesce(lane.lane_state, 'active') AS lane_state, route.required_capabilities,
       ff.now_ms() AS now_ms, e.quota_key_id,
       (SELECT coalesce(p.name, p.quota_policy_id::text) FROM ff.quota_policy p
         WHERE p.quota_policy_id = body.quota_policy_id) AS limit_name, body.quota_dimension,
       (SELECT format('budget %%s is spent: %%s of %%s %%s used',
                      coalesce(nullif(spent.scope_id, ''), spent.budget_id::text), spent.used,
                      spent.hard_limit, spent.dimension)
          FROM ff.spent_budgets(e.budget_ids) AS spent
         WHERE e.budget_ids IS NOT NULL ORDER BY spent.budget_id LIMIT 1) AS spent_budget
  FROM ff.execution e
  JOIN ff.exec_body body USING (partition_key, execution_id)
  JOIN ff.route route USING (route_id)
  LEFT JOIN ff.lane_registry lane ON lane.lane_id = route.lane_id
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class LockedForClaim(msgspec.Struct, frozen=True):
    """The locked row; `lease_expired` is true if a lease is stored and has expired."""

    lifecycle_phase: str
    ownership_state: str
    eligibility_state: str
    terminal_outcome: str
    attempt_state: str
    public_state: str
    attempt_index: int
    lease_epoch: int
    lease_reclaim_count: int
    lease_expired: bool
    past_deadline: bool
    reclaim_cap: int
    lane_id: str
    lane_state: str
    required_capabilities: list[str]
    now_ms: int
    quota_key_id: int | None = None
    limit_name: str | None = None
    quota_dimension: str | None = None
    spent_budget: str | None = None

    @property
    def not_eligible(self) -> str:
        """Why an execution that is not eligible is not, in words."""
        if self.eligibility_state != EligibilityState.BLOCKED_BY_QUOTA or self.limit_name is None:
            return f"it is {self.public_state}"
        key = self.quota_dimension or ""
        return f"it is {self.public_state}: limit {self.limit_name!r}, key {key!r}"

    @property
    def is_eligible(self) -> bool:
        """Does the execution wait for a worker?"""
        return self.eligibility_state == EligibilityState.ELIGIBLE_NOW

    @property
    def is_interrupted(self) -> bool:
        """Does the next claim go on with an attempt that began before?"""
        return self.attempt_state == AttemptState.ATTEMPT_INTERRUPTED

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be claimed: its lane, its deadline, a spent budget; None if it can."""
        if not LaneState(self.lane_state).starts:
            return f"lane {self.lane_id!r} is {self.lane_state}"
        return "its deadline has passed" if self.past_deadline else self.spent_budget


async def lock_for_claim(conn: Connection, execution_id: ExecutionId) -> LockedForClaim | None:
    """The execution, locked until the transaction ends; None if it does not exist.

    Its lease is locked too, so that no renewal saves one that was found to have expired.
    """
    if not await lock_executions(conn, [execution_id], with_leases=True):
        return None  # also one that is created before the next statement: it is not locked
    return await fetch_maybe(
        conn,
        LOCK_FOR_CLAIM,
        LockedForClaim,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )


async def require_for_claim(conn: Connection, execution_id: ExecutionId) -> LockedForClaim:
    """As `lock_for_claim`; raises `NotFound`."""
    locked = await lock_for_claim(conn, execution_id)
    if locked is None:
        raise NotFound("execution", execution_id)
    return locked


def claim_refusal(execution_id: ExecutionId, seen: LockedForClaim) -> EngineError | None:
    """The first that applies: not runnable, owned, not claimable now, running; else None."""
    if seen.lifecycle_phase != LifecyclePhase.RUNNABLE:
        return ExecutionNotActive(
            execution_id,
            lifecycle_phase=seen.lifecycle_phase,
            terminal_outcome=seen.terminal_outcome,
            lease_epoch=seen.lease_epoch,
            attempt_id=attempt_id(execution_id, seen.attempt_index),
        )
    if seen.ownership_state != OwnershipState.UNOWNED:
        return LeaseConflict(execution_id)
    if not seen.is_eligible:
        return ExecutionNotLeaseable(execution_id, seen.not_eligible)
    if seen.obstacle is not None:
        return ExecutionNotLeaseable(execution_id, seen.obstacle)
    if seen.attempt_state == AttemptState.RUNNING_ATTEMPT:
        return ActiveAttemptExists(execution_id)
    return None


def check_same_lane(seen: LockedForClaim, lane_id: str) -> None:
    """Raises `ValidationError(invalid_input)` if the caller names another lane."""
    if lane_id != seen.lane_id:
        raise invalid_input("lane_id", lane_id, f"is not the execution's, {seen.lane_id!r}")


def capability_mismatch(seen: LockedForClaim, offered: Collection[str]) -> ValidationError | None:
    """The error that names the required capabilities which the worker lacks; None if it has all."""
    missing = sorted(set(seen.required_capabilities) - set(offered))
    return ValidationError("capability_mismatch", ",".join(missing)) if missing else None
