"""runnable → runnable: executions that wait for a worker change their place in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.engine.lifecycle.lock_executions import id_columns
from flowfabric.ids import ExecutionId

REPRIORITISE: Final[LiteralString] = """
-- lifecycle.reprioritise
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
)
UPDATE ff.exec_core e
   SET priority = %(priority)s, last_mutation_at_ms = ff.now_ms()
  FROM named
 WHERE (e.partition_key, e.execution_id) = (named.partition_key, named.execution_id)
"""


async def reprioritise(
    conn: Connection, executions: Sequence[ExecutionId], *, priority: int
) -> None:
    """The executions are claimed by this priority; the caller holds their locks."""
    await execute(conn, REPRIORITISE, priority=priority, **id_columns(executions))
