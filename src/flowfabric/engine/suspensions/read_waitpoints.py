"""Waitpoints of one execution with their tokens and signals, by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.suspensions.waitpoint import WAITPOINT_COLUMNS, Waitpoint, WaitpointRow
from flowfabric.ids import ExecutionId

READ_WAITPOINTS: Final[LiteralString] = f"""
-- suspensions.read_waitpoints
SELECT {WAITPOINT_COLUMNS}
  FROM ff.waitpoint_pending w
 WHERE w.execution_id = %(execution_id)s AND w.partition_key = %(partition_key)s
   AND w.waitpoint_id = ANY (%(waitpoint_id)s::uuid[])
"""


async def read_waitpoints(
    conn: Connection, execution_id: ExecutionId, waitpoint_ids: Sequence[UUID]
) -> dict[UUID, Waitpoint]:
    """Those of the waitpoints that the execution has, open or closed."""
    rows = await fetch_all(
        conn,
        READ_WAITPOINTS,
        WaitpointRow,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        waitpoint_id=list(waitpoint_ids),
    )
    return {row.waitpoint_id: row.waitpoint() for row in rows}
