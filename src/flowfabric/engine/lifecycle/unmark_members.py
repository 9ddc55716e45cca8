"""active, suspended → the same: the cancel of a flow that is open again ends no more members."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, Moved, fetch_one

UNMARK_MEMBERS: Final[LiteralString] = """
-- lifecycle.unmark_members
WITH seen AS (        -- in one order
    SELECT partition_key, execution_id, blocking_reason = 'paused_by_flow_cancel' AS parked
      FROM ff.exec_core
     WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s
       AND lifecycle_phase <> 'terminal' AND flow_cancelled
     ORDER BY partition_key, execution_id FOR NO KEY UPDATE
), unmarked AS (
    UPDATE ff.exec_core e SET flow_cancelled = false
      FROM seen
     WHERE (e.partition_key, e.execution_id) = (seen.partition_key, seen.execution_id)
       AND NOT seen.parked
)
SELECT count(*) FILTER (WHERE parked) AS moved FROM seen
"""


async def unmark_members(conn: Connection, partition_key: int, flow_id: UUID) -> int:
    """Members that run are requeued as ever; how many are parked and about to be ended.

    The caller has locked the flow.
    """
    return (
        await fetch_one(conn, UNMARK_MEMBERS, Moved, partition_key=partition_key, flow_id=flow_id)
    ).moved
