"""The public state of one execution."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState

READ_EXECUTION_STATE: Final[LiteralString] = """
-- executions.read_execution_state
SELECT public_state FROM ff.execution
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class _State(msgspec.Struct, frozen=True):
    public_state: str


async def read_execution_state(conn: Connection, execution_id: ExecutionId) -> PublicState | None:
    """The public state; None if the execution does not exist."""
    row = await fetch_maybe(
        conn,
        READ_EXECUTION_STATE,
        _State,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    return None if row is None else PublicState(row.public_state)
