"""The namespace of an execution."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.facts import read_facts
from flowfabric.ids import ExecutionId


async def get_execution_namespace(conn: Connection, execution_id: ExecutionId) -> str | None:
    """The namespace that the execution was created in; None if it does not exist."""
    facts = await read_facts(conn, execution_id)
    return None if facts is None else facts.namespace
