"""How many attempts an execution has had."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.facts import require_facts
from flowfabric.ids import ExecutionId


async def read_total_attempt_count(conn: Connection, execution_id: ExecutionId) -> int:
    """How many attempts began; raises `ValidationError` if the execution does not exist."""
    return (await require_facts(conn, execution_id)).total_attempt_count
