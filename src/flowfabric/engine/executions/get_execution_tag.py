"""One tag of an execution."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.facts import read_facts
from flowfabric.ids import ExecutionId, check_tag_key


async def get_execution_tag(conn: Connection, execution_id: ExecutionId, key: str) -> str | None:
    """The value of the tag; None if there is no such tag or no such execution."""
    facts = await read_facts(conn, execution_id, key=check_tag_key(key))
    return None if facts is None else facts.tag
