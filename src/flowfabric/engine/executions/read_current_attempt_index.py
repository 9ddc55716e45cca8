"""The index of the attempt that runs or comes next."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.facts import require_facts
from flowfabric.ids import ExecutionId


async def read_current_attempt_index(conn: Connection, execution_id: ExecutionId) -> int:
    """The index of the attempt that runs or comes next; raises `ValidationError` if none exists."""
    return max(0, (await require_facts(conn, execution_id)).attempt_index)
