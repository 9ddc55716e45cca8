"""runnable → runnable: executions that wait for a worker change their place in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.engine.lifecycle.lock_executions import id_columns
from flowfabric.engine.lifecycle.sql.queue import dequeued, queued
from flowfabric.ids import ExecutionId

REPRIORITISE: Final[LiteralString] = (
    """
-- lifecycle.reprioritise
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), seen AS (
    SELECT e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms,
           e.eligibility_state, e.deadline_at_ms, e.quota_key_id
      FROM ff.execution e JOIN named USING (partition_key, execution_id)
), changed AS (
    UPDATE ff.exec_core e
       SET priority = %(priority)s, last_mutation_at_ms = ff.now_ms()
      FROM seen
     WHERE (e.partition_key, e.execution_id) = (seen.partition_key, seen.execution_id)
 RETURNING e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms,
           seen.eligibility_state, e.deadline_at_ms, e.quota_key_id, e.budget_ids,
           seen.priority AS old_priority
), leaving AS (      -- an execution that has this priority already keeps its row in the queue
    SELECT * FROM seen WHERE priority <> %(priority)s
), arriving AS (
    SELECT * FROM changed WHERE priority <> old_priority
)"""
    + dequeued("leaving")
    + queued("arriving")
    + """
SELECT count(*) AS moved FROM changed
"""
)


async def reprioritise(
    conn: Connection, executions: Sequence[ExecutionId], *, priority: int
) -> None:
    """The executions are claimed by this priority; the caller holds their locks."""
    await execute(conn, REPRIORITISE, priority=priority, **id_columns(executions))
