"""The execution that compensates for another one."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_maybe
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId, compensation_id

READ_REPLAYS: Final[LiteralString] = """
-- journal.read_compensation: how often the execution was replayed
SELECT replay_count FROM ff.exec_core
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
"""

READ_COMPENSATION: Final[LiteralString] = """
-- journal.read_compensation
SELECT execution_id FROM ff.exec_core
 WHERE partition_key = %(partition_key)s AND execution_id = ANY (%(compensation)s::uuid[])
"""
_LOOKED_AT: Final = 100
"""Ends of an execution, the last ones, whose compensations are looked for."""


class _Replays(msgspec.Struct, frozen=True):
    replay_count: int


class _Found(msgspec.Struct, frozen=True):
    execution_id: UUID


async def read_compensation(conn: Connection, execution_id: ExecutionId) -> ExecutionId | None:
    """The last execution that was made to compensate for this one, if there is one.

    Raises `NotFound`.
    """
    where = {"partition_key": execution_id.partition_key}
    replays = await fetch_maybe(
        conn, READ_REPLAYS, _Replays, execution_id=execution_id.uuid, **where
    )
    if replays is None:
        raise NotFound("execution", execution_id)
    first = max(0, replays.replay_count - _LOOKED_AT + 1)
    ids = [
        compensation_id(execution_id, count) for count in range(replays.replay_count, first - 1, -1)
    ]
    rows = await fetch_all(
        conn, READ_COMPENSATION, _Found, compensation=[each.uuid for each in ids], **where
    )
    found = {row.execution_id for row in rows}
    return next((each for each in ids if each.uuid in found), None)
