"""The result of one execution."""

from __future__ import annotations

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.read_outcomes import read_outcomes
from flowfabric.ids import ExecutionId


async def get_execution_result(conn: Connection, execution_id: ExecutionId) -> bytes | None:
    """The result; None if the execution has not succeeded or returned nothing."""
    outcome = (await read_outcomes(conn, [execution_id])).get(execution_id)
    return None if outcome is None else outcome.result
