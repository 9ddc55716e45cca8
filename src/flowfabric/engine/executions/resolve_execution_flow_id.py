"""The flow that an execution is a member of."""

from __future__ import annotations

from uuid import UUID

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.facts import read_facts
from flowfabric.ids import ExecutionId


async def resolve_execution_flow_id(conn: Connection, execution_id: ExecutionId) -> UUID | None:
    """The flow of the execution; None if it is in no flow or does not exist."""
    facts = await read_facts(conn, execution_id)
    return None if facts is None else facts.flow_id
