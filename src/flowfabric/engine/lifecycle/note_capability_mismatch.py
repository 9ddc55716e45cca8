"""runnable → runnable: an execution keeps when a worker without its capabilities was tried."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.ids import ExecutionId

NOTE_CAPABILITY_MISMATCH: Final[LiteralString] = """
-- lifecycle.note_capability_mismatch
UPDATE ff.exec_core
   SET last_capability_mismatch_at_ms = ff.now_ms(), last_mutation_at_ms = ff.now_ms()
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
"""


async def note_capability_mismatch(conn: Connection, execution_id: ExecutionId) -> None:
    """The execution's `last_capability_mismatch_at_ms` is now."""
    await execute(
        conn,
        NOTE_CAPABILITY_MISMATCH,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
