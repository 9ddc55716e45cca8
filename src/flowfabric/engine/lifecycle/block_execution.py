"""runnable ⇄ runnable(blocked): admission holds an execution back, or lets it go again."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, Moved, execute, fetch_one
from flowfabric.engine.lifecycle.operator_event import SOMEBODY, check_actor, operator_event
from flowfabric.engine.lifecycle.standing_of import Standing, standing_of
from flowfabric.errors import ExecutionNotActive, ExecutionNotEligible, ValidationError
from flowfabric.ids import ExecutionId, attempt_id, clean_text
from flowfabric.states import (
    BlockingReason,
    EligibilityState,
    LifecyclePhase,
    OperatorEventType,
)

BLOCK: Final[LiteralString] = """
-- lifecycle.block_execution_for_admission
UPDATE ff.exec_core
   SET eligibility_state = %(eligibility_state)s, blocking_reason = %(blocking_reason)s,
       blocking_detail = %(blocking_detail)s, delay_until_ms = NULL,
       last_mutation_at_ms = ff.now_ms()
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
"""

UNBLOCK: Final[LiteralString] = """
-- lifecycle.unblock_execution
WITH unblocked AS (   -- one that was given an edge meanwhile waits for others now
    UPDATE ff.exec_core
       SET eligibility_state = CASE WHEN not_before_ms IS NULL THEN 'eligible_now'
                                    ELSE 'blocked_by_dependencies' END,
           blocking_reason = CASE WHEN not_before_ms IS NULL THEN 'waiting_for_worker'
                                  ELSE 'waiting_for_children' END,
           blocking_detail = NULL, last_mutation_at_ms = ff.now_ms()
     WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
 RETURNING route_id, eligibility_state
), called AS (        -- whoever waits for work on its lane
    SELECT ff.wake('lane:' || r.lane_id) FROM unblocked JOIN ff.route r USING (route_id)
     WHERE unblocked.eligibility_state = 'eligible_now'
)
SELECT eligibility_state FROM unblocked WHERE (SELECT count(*) FROM called) IS NOT NULL
"""

UNBLOCK_ROUTES: Final[LiteralString] = """
-- lifecycle.unblock_routes
WITH served AS (      -- routes that a live worker of their lane can run
    SELECT r.route_id, r.lane_id FROM ff.route r
     WHERE r.route_id IN (SELECT e.route_id FROM ff.exec_core e
                           WHERE e.eligibility_state = 'blocked_by_route')
       AND EXISTS (SELECT FROM ff.worker_registry w
                    WHERE w.namespace = r.namespace AND r.lane_id = ANY (w.lanes)
                      AND r.required_capabilities <@ w.capabilities
                      AND w.last_heartbeat_ms + w.liveness_ttl_ms > ff.now_ms())
), found AS (
    SELECT e.partition_key, e.execution_id FROM ff.exec_core e
     WHERE e.eligibility_state = 'blocked_by_route' AND e.route_id IN (SELECT route_id FROM served)
     LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), unblocked AS (
    UPDATE ff.exec_core e
       SET eligibility_state = 'eligible_now', blocking_reason = 'waiting_for_worker',
           blocking_detail = NULL, last_mutation_at_ms = ff.now_ms()
      FROM found WHERE (e.partition_key, e.execution_id) = (found.partition_key, found.execution_id)
 RETURNING e.route_id
), called AS (        -- whoever waits for work on a lane that has some now
    SELECT ff.wake('lane:' || lane_id)
      FROM (SELECT DISTINCT served.lane_id FROM unblocked JOIN served USING (route_id)) AS lanes
)
SELECT count(*) AS moved FROM unblocked WHERE (SELECT count(*) FROM called) IS NOT NULL
"""

ELIGIBILITY_OF: Final = {
    BlockingReason.WAITING_FOR_BUDGET: EligibilityState.BLOCKED_BY_BUDGET,
    BlockingReason.WAITING_FOR_QUOTA: EligibilityState.BLOCKED_BY_QUOTA,
    BlockingReason.WAITING_FOR_CAPABLE_WORKER: EligibilityState.BLOCKED_BY_ROUTE,
    BlockingReason.PAUSED_BY_OPERATOR: EligibilityState.BLOCKED_BY_OPERATOR,
    BlockingReason.PAUSED_BY_POLICY: EligibilityState.BLOCKED_BY_LANE_STATE,
}
UNBLOCKABLE: Final = frozenset(
    {
        EligibilityState.BLOCKED_BY_BUDGET,
        EligibilityState.BLOCKED_BY_QUOTA,
        EligibilityState.BLOCKED_BY_ROUTE,
        EligibilityState.BLOCKED_BY_OPERATOR,
    }
)


class Blocked(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is not claimable until it is unblocked."""

    execution_id: ExecutionId
    eligibility_state: EligibilityState


class Unblocked(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is claimable again, or waits for what it came to depend on meanwhile."""

    execution_id: ExecutionId
    eligibility_state: EligibilityState = EligibilityState.ELIGIBLE_NOW


class _Unblocked(msgspec.Struct, frozen=True):
    eligibility_state: str


async def block_execution_for_admission(
    conn: Connection,
    execution_id: ExecutionId,
    reason: str,
    *,
    detail: str | None = None,
    actor: str = SOMEBODY,
) -> Blocked:
    """The execution is held back for `reason`; an operator's pause leaves an event.

    Raises `ValidationError(invalid_blocking_reason)`, `NotFound`, `ExecutionNotActive` when it has
    ended, and `ExecutionNotEligible` unless it waits for a worker.
    """
    eligibility = ELIGIBILITY_OF.get(_blocking_reason(reason))
    if eligibility is None:
        raise _no_block(reason)
    check_actor(actor)
    standing = await standing_of(conn, execution_id)
    if standing.lifecycle_phase == LifecyclePhase.TERMINAL:
        raise _ended(execution_id, standing)
    if standing.eligibility_state != EligibilityState.ELIGIBLE_NOW:
        raise ExecutionNotEligible(execution_id, standing.public_state, word=standing.word)
    await execute(
        conn,
        BLOCK,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        eligibility_state=eligibility.value,
        blocking_reason=reason,
        blocking_detail=None if detail is None else clean_text(detail),
    )
    if reason == BlockingReason.PAUSED_BY_OPERATOR:
        await operator_event(
            conn,
            OperatorEventType.BLOCKED,
            actor=actor,
            reason=detail,
            execution_id=execution_id,
            old_eligibility_state=standing.eligibility_state,
            new_eligibility_state=eligibility,
        )
    return Blocked(execution_id=execution_id, eligibility_state=eligibility)


async def unblock_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    expected_blocking_reason: str | None = None,
    actor: str = SOMEBODY,
) -> Unblocked:
    """The execution is claimable again; lifting an operator's pause leaves an event.

    A member of a flow that was given an edge while it was paused waits for that. Raises `NotFound`,
    and `ExecutionNotEligible` unless a budget, a quota, its route or an operator holds it back, for
    the expected reason if one is given.
    """
    if expected_blocking_reason is not None:
        _blocking_reason(expected_blocking_reason)
    check_actor(actor)
    standing = await standing_of(conn, execution_id)
    if (
        standing.eligibility_state not in UNBLOCKABLE
        or standing.blocking_reason == BlockingReason.PAUSED_BY_FLOW_CANCEL
        or expected_blocking_reason not in (None, standing.blocking_reason)
    ):
        raise ExecutionNotEligible(
            execution_id, standing.public_state, word=standing.word, wanted="held back so"
        )
    unblocked = await fetch_one(
        conn,
        UNBLOCK,
        _Unblocked,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    eligibility = EligibilityState(unblocked.eligibility_state)
    if standing.blocking_reason == BlockingReason.PAUSED_BY_OPERATOR:
        await operator_event(
            conn,
            OperatorEventType.UNBLOCKED,
            actor=actor,
            reason=None,
            execution_id=execution_id,
            old_eligibility_state=standing.eligibility_state,
            new_eligibility_state=eligibility,
        )
    return Unblocked(execution_id=execution_id, eligibility_state=eligibility)


async def unblock_routes(conn: Connection, limit: int) -> int:
    """Let at most `limit` executions go whose route a live worker serves by now."""
    return (await fetch_one(conn, UNBLOCK_ROUTES, Moved, limit=limit)).moved


def _blocking_reason(reason: str) -> BlockingReason:
    try:
        return BlockingReason(reason)
    except ValueError:
        raise _no_block(reason) from None


def _no_block(reason: str) -> ValidationError:
    known = ", ".join(sorted(ELIGIBILITY_OF))
    return ValidationError("invalid_blocking_reason", f"reason {reason!r} is not one of {known}")


def _ended(execution_id: ExecutionId, standing: Standing) -> ExecutionNotActive:
    return ExecutionNotActive(
        execution_id,
        lifecycle_phase=standing.lifecycle_phase,
        terminal_outcome=standing.terminal_outcome,
        lease_epoch=standing.lease_epoch,
        attempt_id=attempt_id(execution_id, standing.attempt_index),
    )
