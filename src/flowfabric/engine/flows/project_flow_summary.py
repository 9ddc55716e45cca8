"""The summary of one flow is computed again from its members."""

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
-- flows.project_flow_summary: the summary, locked
SELECT count(*) AS moved
  FROM (SELECT FROM ff.flow_summary
         WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) FOR UPDATE) AS locked
"""


async def project_flow_summary(conn: Connection, flow_id: UUID, *, partitions: int = 256) -> bool:
    """The summary counts the members as they are now; False if the flow has no members.

    Needs a transaction: the members are counted while the summary is locked, so that an older count
    never replaces a newer one.
    """
    one = {"partition_key": uuid_partition(flow_id, partitions), "flow_id": flow_id}
    await fetch_one(conn, LOCK_SUMMARY, Moved, **one)
    projected = await fetch_one(conn, PROJECT_FLOW_SUMMARY, Moved, even_empty=False, **one)
    return projected.moved > 0
