"""Whether the joins of an execution allow it to run; nothing changes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import ExecutionId
from flowfabric.states import LifecyclePhase

# A join without edges blocks nothing. A join over children blocks only a handler that waits.
DEPENDENCY_STATUS: Final[LiteralString] = """
-- joins.dependency_status
SELECT e.lifecycle_phase, e.eligibility_state, e.public_state, e.flow_id,
       e.flow_cancelled OR EXISTS (
           SELECT FROM ff.cancel_backlog_member m
            WHERE (m.partition_key, m.execution_id)
                = (e.partition_key, e.execution_id)) AS cancel_pending,
       EXISTS (SELECT FROM ff.edge_group g
                WHERE (g.partition_key, g.waiter_eid) = (e.partition_key, e.execution_id)
                  AND g.waits_as = 'member' AND g.group_state = 'impossible') AS impossible,
       EXISTS (SELECT FROM ff.edge_group g
                WHERE (g.partition_key, g.waiter_eid) = (e.partition_key, e.execution_id)
                  AND g.group_state = 'pending'
                  AND CASE g.waits_as
                           WHEN 'children' THEN e.eligibility_state = 'blocked_by_dependencies'
                           ELSE g.success_count + g.fail_count + g.skip_count + g.running_count > 0
                      END) AS pending
  FROM ff.execution e
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class FlowEligibility(StrEnum):
    """Whether an execution may run, as far as its joins are concerned."""

    NOT_FOUND = "not_found"
    NOT_RUNNABLE = "not_runnable"
    OWNED = "owned"
    TERMINAL = "terminal"
    IMPOSSIBLE = "impossible"
    BLOCKED_BY_DEPENDENCIES = "blocked_by_dependencies"
    ELIGIBLE = "eligible"


class DependencyStatus(msgspec.Struct, frozen=True):
    """An execution, and the states of its joins."""

    lifecycle_phase: str
    eligibility_state: str
    public_state: str
    flow_id: UUID | None
    cancel_pending: bool
    """Is its cancelled flow about to end it?"""
    impossible: bool
    pending: bool

    @property
    def eligibility(self) -> FlowEligibility:
        """The first that applies."""
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


async def dependency_status(conn: Connection, execution_id: ExecutionId) -> DependencyStatus | None:
    """The execution and its joins, not locked; None if it does not exist."""
    return await fetch_maybe(
        conn,
        DEPENDENCY_STATUS,
        DependencyStatus,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )


async def evaluate_flow_eligibility(conn: Connection, execution_id: ExecutionId) -> FlowEligibility:
    """What its joins say about the execution; one without joins is `eligible`."""
    status = await dependency_status(conn, execution_id)
    return FlowEligibility.NOT_FOUND if status is None else status.eligibility
