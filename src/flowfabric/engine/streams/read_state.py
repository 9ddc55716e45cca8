"""The state of a handler: the summary of the newest attempt that has one."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.streams.read_summary import StreamSummary, newest_summary
from flowfabric.ids import ExecutionId


async def read_state(conn: Connection, execution_id: ExecutionId) -> StreamSummary | None:
    """What the handler has last patched, at any time, also after the end; None if nothing."""
    return await newest_summary(conn, execution_id, None)
