"""runnable → runnable: the time when a worker without the capabilities was refused."""

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
    """`last_capability_mismatch_at_ms` of the execution is the current time."""
    await execute(
        conn,
        NOTE_CAPABILITY_MISMATCH,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
