"""The summary of one flow is brought up to date."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.flows.summary import PROJECTED
from flowfabric.ids import uuid_partition

PROJECT_FLOW_SUMMARY: Final[LiteralString] = (
    """
-- flows.project_flow_summary
WITH wanted AS (
    SELECT %(partition_key)s::smallint AS partition_key, %(flow_id)s::uuid AS flow_id
)"""
    + PROJECTED
)


LOCK_SUMMARY: Final[LiteralString] = """
-- flows.project_flow_summary: nobody else changes it meanwhile
SELECT count(*) AS moved
  FROM (SELECT FROM ff.flow_summary
         WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) FOR UPDATE) AS locked
"""


async def project_flow_summary(conn: Connection, flow_id: UUID, *, partitions: int = 256) -> bool:
    """The flow's summary is as its members are now; False where it has no members.

    Needs a transaction: the members are counted once nobody else changes the summary.
    """
    one = {"partition_key": uuid_partition(flow_id, partitions), "flow_id": flow_id}
    await fetch_one(conn, LOCK_SUMMARY, Moved, **one)
    projected = await fetch_one(conn, PROJECT_FLOW_SUMMARY, Moved, even_empty=False, **one)
    return projected.moved > 0
