"""Executions are locked: no other transaction moves them until this one ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_all, fetch_one
from flowfabric.ids import ExecutionId, attempt_id, id_columns

LOCK_EXECUTIONS: Final[LiteralString] = """
-- lifecycle.lock_executions
WITH locked AS (      -- in one order
    SELECT FROM ff.exec_core e
      JOIN unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
           AS named (partition_key, execution_id) USING (partition_key, execution_id)
     ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e
)
SELECT count(*) AS moved FROM locked
"""

# A row that another transaction had locked is read again once locked; the policy never changes.
LOCK_AND_READ: Final[LiteralString] = """
-- lifecycle.lock_and_read
SELECT e.partition_key, e.execution_id, e.flow_id, e.lifecycle_phase, e.eligibility_state,
       e.blocking_reason, e.terminal_outcome, e.public_state, e.priority, e.attempt_index,
       e.replay_count, e.lease_epoch, e.lease_id, e.worker_instance_id,
       ff.replay_cap(b.policy) AS max_replay_count, r.lane_id,
       coalesce((SELECT l.lane_state FROM ff.lane_registry l WHERE l.lane_id = r.lane_id),
                'active') AS lane_state
  FROM ff.exec_core e
  JOIN unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id) USING (partition_key, execution_id)
  JOIN ff.exec_body b USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e
"""


class LockedExecution(msgspec.Struct, frozen=True):
    """The locked row, as far as the checks of an operator look at it."""

    partition_key: int
    execution_id: UUID
    flow_id: UUID | None
    lifecycle_phase: str
    eligibility_state: str
    blocking_reason: str
    terminal_outcome: str
    public_state: str
    priority: int
    attempt_index: int
    replay_count: int
    lease_epoch: int
    lease_id: UUID | None
    worker_instance_id: str | None
    max_replay_count: int
    lane_id: str
    lane_state: str

    @property
    def id(self) -> ExecutionId:
        return ExecutionId(self.partition_key, self.execution_id)

    @property
    def attempt_id(self) -> UUID:
        """The id of the current or last attempt."""
        return attempt_id(self.id, self.attempt_index)

    @property
    def status(self) -> str:
        """What holds the execution back if something does, else its public state."""
        blocked = self.eligibility_state.startswith("blocked_by_")
        return self.eligibility_state if blocked else self.public_state


async def lock_executions(conn: Connection, executions: Sequence[ExecutionId]) -> None:
    """The executions are locked; what a later statement of the transaction sees stays true."""
    await fetch_one(conn, LOCK_EXECUTIONS, Moved, **id_columns(executions))


async def lock_and_read(
    conn: Connection, executions: Sequence[ExecutionId]
) -> dict[ExecutionId, LockedExecution]:
    """The executions are locked; each row as it is under its lock, without those that are gone."""
    rows = await fetch_all(conn, LOCK_AND_READ, LockedExecution, **id_columns(executions))
    return {row.id: row for row in rows}
