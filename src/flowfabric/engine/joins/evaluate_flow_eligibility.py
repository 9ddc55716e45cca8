"""May an execution run, as far as what it depends on goes? Nothing changes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import ExecutionId
from flowfabric.states import LifecyclePhase

# A group without an edge asks for nothing. Waits for children hold up only who has let go for them.
STANDING: Final[LiteralString] = """
-- joins.dependency_standing
SELECT e.lifecycle_phase, e.eligibility_state, e.public_state, e.flow_id,
       e.flow_cancelled OR EXISTS (
           SELECT FROM ff.cancel_backlog_member m
            WHERE (m.partition_key, m.execution_id) = (e.partition_key, e.execution_id)) AS owed,
       EXISTS (SELECT FROM ff.edge_group g
                WHERE (g.partition_key, g.downstream_eid) = (e.partition_key, e.execution_id)
                  AND g.group_state = 'impossible') AS impossible,
       EXISTS (SELECT FROM ff.edge_group g
                WHERE (g.partition_key, g.downstream_eid) = (e.partition_key, e.execution_id)
                  AND g.group_state = 'pending'
                  AND g.success_count + g.fail_count + g.skip_count + g.running_count > 0)
       OR e.eligibility_state = 'blocked_by_dependencies' AND EXISTS (
           SELECT FROM ff.edge_group w
            WHERE (w.partition_key, w.wakes) = (e.partition_key, e.execution_id)
              AND w.group_state = 'pending') AS pending
  FROM ff.exec_core e
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class FlowEligibility(StrEnum):
    """What its dependencies say of an execution."""

    NOT_FOUND = "not_found"
    NOT_RUNNABLE = "not_runnable"
    OWNED = "owned"
    TERMINAL = "terminal"
    IMPOSSIBLE = "impossible"
    BLOCKED_BY_DEPENDENCIES = "blocked_by_dependencies"
    ELIGIBLE = "eligible"


class DependencyStatus(msgspec.Struct, frozen=True):
    """An execution beside what it depends on."""

    lifecycle_phase: str
    eligibility_state: str
    public_state: str
    flow_id: UUID | None
    owed: bool
    """Is its cancelled flow about to end it?"""
    impossible: bool
    pending: bool

    @property
    def eligibility(self) -> FlowEligibility:
        match self.lifecycle_phase:
            case LifecyclePhase.SUSPENDED:
                return FlowEligibility.NOT_RUNNABLE
            case LifecyclePhase.ACTIVE:
                return FlowEligibility.OWNED
            case LifecyclePhase.TERMINAL:
                return FlowEligibility.TERMINAL
            case _ if self.impossible:
                return FlowEligibility.IMPOSSIBLE
            case _ if self.pending:
                return FlowEligibility.BLOCKED_BY_DEPENDENCIES
            case _:
                return FlowEligibility.ELIGIBLE


async def dependency_standing(
    conn: Connection, execution_id: ExecutionId
) -> DependencyStatus | None:
    """The execution as it stands, not locked; None where there is none."""
    return await fetch_maybe(
        conn,
        STANDING,
        DependencyStatus,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )


async def evaluate_flow_eligibility(conn: Connection, execution_id: ExecutionId) -> FlowEligibility:
    """What its groups say of the execution; one that depends on nothing is `eligible`."""
    standing = await dependency_standing(conn, execution_id)
    return FlowEligibility.NOT_FOUND if standing is None else standing.eligibility
