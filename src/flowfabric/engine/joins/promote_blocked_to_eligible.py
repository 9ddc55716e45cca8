"""An execution that waits for dependencies, and has none that is open, becomes eligible."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.joins.evaluate_flow_eligibility import (
    DependencyStatus,
    FlowEligibility,
    dependency_status,
)
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.promote_dependents import promote_dependents
from flowfabric.errors import (
    DepsNotSatisfied,
    ExecutionNotRunnable,
    ExecutionTerminal,
    FlowAlreadyTerminal,
    FlowFabricError,
    NotBlockedByDeps,
    NotFound,
)
from flowfabric.ids import ExecutionId
from flowfabric.states import EligibilityState, LifecyclePhase

# Joins before the execution, as every operation locks. The status is read by a later statement:
# it may have changed while this one waited.
LOCK_JOINS: Final[LiteralString] = """
-- joins.promote_blocked_to_eligible: its joins
WITH locked AS (
    SELECT FROM ff.edge_group g
     WHERE (g.partition_key, g.waiter_eid) = (%(partition_key)s, %(execution_id)s)
     ORDER BY g.group_id FOR NO KEY UPDATE OF g
)
SELECT count(*) AS moved FROM locked
"""


class MemberPromoted(msgspec.Struct, frozen=True, kw_only=True):
    """The execution is claimable, or delayed until its own time."""

    execution_id: ExecutionId


async def promote_blocked_to_eligible(
    conn: Connection, execution_id: ExecutionId
) -> MemberPromoted:
    """The execution does not wait for dependencies any more; needs a transaction.

    This is for executions that were created with `hold` and got no edge. Raises the first that
    applies: `NotFound`, `ExecutionNotRunnable`, `ExecutionTerminal`, `NotBlockedByDeps`,
    `FlowAlreadyTerminal` if its cancelled flow is about to end it, and `DepsNotSatisfied`.
    """
    one = {"partition_key": execution_id.partition_key, "execution_id": execution_id.uuid}
    await fetch_one(conn, LOCK_JOINS, Moved, **one)
    if not await lock_executions(conn, [execution_id]):
        raise NotFound("execution", execution_id)
    refusal = _refusal(execution_id, await dependency_status(conn, execution_id))
    if refusal is not None:
        raise refusal
    await promote_dependents(conn, [execution_id])
    return MemberPromoted(execution_id=execution_id)


def _refusal(execution_id: ExecutionId, status: DependencyStatus | None) -> FlowFabricError | None:
    if status is None:
        return NotFound("execution", execution_id)
    if status.lifecycle_phase == LifecyclePhase.TERMINAL:
        return ExecutionTerminal(execution_id, status.public_state)
    if status.lifecycle_phase != LifecyclePhase.RUNNABLE:
        return ExecutionNotRunnable(execution_id, status.public_state)
    if status.eligibility_state != EligibilityState.BLOCKED_BY_DEPENDENCIES:
        return NotBlockedByDeps(execution_id, status.public_state)
    if status.cancel_pending and status.flow_id is not None:
        return FlowAlreadyTerminal(status.flow_id)
    if status.eligibility is not FlowEligibility.ELIGIBLE:
        return DepsNotSatisfied(execution_id)
    return None
