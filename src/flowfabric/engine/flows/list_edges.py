"""The edges of a flow: all, those that leave one member, or those that lead to one."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.edge import EDGE_COLUMNS, EdgeRow, EdgeSnapshot, edge_snapshot
from flowfabric.ids import ExecutionId, uuid_partition

LIST_EDGES: Final[LiteralString] = (
    "\n-- flows.list_edges"
    + EDGE_COLUMNS
    + """ WHERE e.partition_key = %(partition_key)s AND e.flow_id = %(flow_id)s
   AND (%(upstream)s::uuid IS NULL OR e.upstream_eid = %(upstream)s)
   AND (%(downstream)s::uuid IS NULL OR g.waiter_eid = %(downstream)s)
 ORDER BY e.edge_id
"""
)


async def list_edges(
    conn: Connection,
    flow_id: UUID,
    *,
    outgoing_from: ExecutionId | None = None,
    incoming_to: ExecutionId | None = None,
    partitions: int = 256,
) -> list[EdgeSnapshot]:
    """The edges by id: all, those that leave one member, or those that lead to one."""
    rows = await fetch_all(
        conn,
        LIST_EDGES,
        EdgeRow,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
        upstream=None if outgoing_from is None else outgoing_from.uuid,
        downstream=None if incoming_to is None else incoming_to.uuid,
    )
    return [edge_snapshot(row) for row in rows]
