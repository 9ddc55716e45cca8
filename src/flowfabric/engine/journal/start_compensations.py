"""Executions that ended without success are compensated: one execution makes the armed calls."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_maybe
from flowfabric.engine.journal.compensation import COMPENSATE_KIND, ENCODING, compensation_input
from flowfabric.engine.journal.kept_entries import KeptEntries, kept_entries
from flowfabric.engine.lifecycle.arm_compensations import arm_compensations
from flowfabric.engine.lifecycle.create_execution import NewExecution, create_execution
from flowfabric.ids import ExecutionId, compensation_id

_ANY_PARTITION: Final = 2**15
"""The partition is that of an execution that exists."""

# The conditions are those of the index.
UNCOMPENSATED: Final[LiteralString] = """e.compensates
   AND e.exceptional_state IN ('failed', 'cancelled', 'expired', 'skipped')"""

START_COMPENSATIONS: Final[LiteralString] = f"""
-- journal.start_compensations
SELECT e.partition_key, e.execution_id, e.replay_count, e.priority, r.namespace, r.lane_id
  FROM ff.exec_core e JOIN ff.route r USING (route_id)
 WHERE {UNCOMPENSATED}
   AND NOT EXISTS (    -- a lane that takes nothing new: later
           SELECT FROM ff.lane_registry l
            WHERE l.lane_id = r.lane_id AND l.lane_state IN ('draining', 'disabled'))
 ORDER BY e.created_at_ms LIMIT %(limit)s
   FOR NO KEY UPDATE OF e SKIP LOCKED
"""

COMPENSATIONS_DUE: Final[LiteralString] = f"""
-- journal.compensations_due
SELECT e.created_at_ms FROM ff.exec_core e
 WHERE {UNCOMPENSATED}
 ORDER BY e.created_at_ms LIMIT 1
"""


class _Ended(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    replay_count: int
    priority: int
    namespace: str
    lane_id: str

    @property
    def id(self) -> ExecutionId:
        return ExecutionId(self.partition_key, self.execution_id)

    def compensation(self, kept: KeptEntries) -> NewExecution | None:
        """The execution that makes the armed calls, the last one first; None if none is armed."""
        calls = [each.value for each in reversed(kept.armed) if each.value is not None]
        if not calls:
            return None
        return NewExecution(
            execution_id=compensation_id(self.id, self.replay_count),
            execution_kind=COMPENSATE_KIND,
            lane_id=self.lane_id,
            namespace=self.namespace,
            input_payload=compensation_input(self.id, self.replay_count, calls),
            payload_encoding=ENCODING,
            priority=self.priority,
            creator_identity=f"compensation of {self.id}",
        )


class _Due(msgspec.Struct, frozen=True):
    created_at_ms: int


async def compensations_due(conn: Connection) -> bool:
    """Has an execution ended without success whose compensations are not started?"""
    return await fetch_maybe(conn, COMPENSATIONS_DUE, _Due) is not None


async def start_compensations(conn: Connection, limit: int) -> int:
    """At most `limit` executions that ended without success are compensated; how many were found.

    Needs a transaction. For each, one execution of kind `ff.compensate` exists, in the same lane
    and namespace and in no flow; its id is that of `compensation_id`. The execution itself does
    not compensate any more. Those in lanes that take nothing new wait.
    """
    ended = await fetch_all(conn, START_COMPENSATIONS, _Ended, limit=limit)
    if not ended:
        return 0
    kept = await kept_entries(conn, [each.id for each in ended])
    made = (each.compensation(kept[each.id]) for each in ended)
    await create_execution(
        conn, [new for new in made if new is not None], partitions=_ANY_PARTITION
    )
    await arm_compensations(conn, [each.id for each in ended], armed=False)
    return len(ended)
