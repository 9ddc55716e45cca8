"""The edges of a flow: all, those that leave one member, or those that lead to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.edge import (
    EDGE_COLUMNS,
    MANY_EDGES,
    EdgeRow,
    EdgeSnapshot,
    edge_snapshot,
)
from flowfabric.ids import ExecutionId, uuid_partition

_OF_FLOW: Final[LiteralString] = """ WHERE e.partition_key = %(partition_key)s
   AND e.flow_id = %(flow_id)s
   AND (%(namespaces)s::text[] IS NULL
        OR EXISTS (SELECT FROM ff.flow_core f
                    WHERE (f.partition_key, f.flow_id) = (%(partition_key)s, %(flow_id)s)
                      AND f.namespace = ANY (%(namespaces)s::text[])))"""

_BY_ID: Final[LiteralString] = """
 ORDER BY e.edge_id
"""

# One statement for each index.
LIST_EDGES: Final[LiteralString] = "\n-- flows.list_edges" + MANY_EDGES + _OF_FLOW + _BY_ID

OUTGOING: Final[LiteralString] = (
    "\n-- flows.list_edges: that leave one member"
    + EDGE_COLUMNS
    + _OF_FLOW
    + """ AND e.upstream_eid = %(upstream)s
   AND (%(downstream)s::uuid IS NULL OR g.waiter_eid = %(downstream)s)"""
    + _BY_ID
)

INCOMING: Final[LiteralString] = (
    "\n-- flows.list_edges: that lead to one member"
    + EDGE_COLUMNS
    + _OF_FLOW
    + """ AND g.waiter_eid = %(downstream)s"""
    + _BY_ID
)


async def list_edges(
    conn: Connection,
    flow_id: UUID,
    *,
    outgoing_from: ExecutionId | None = None,
    incoming_to: ExecutionId | None = None,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> list[EdgeSnapshot]:
    """The edges by id: all, those that leave one member, or those that lead to one."""
    where = {
        "partition_key": uuid_partition(flow_id, partitions),
        "flow_id": flow_id,
        "namespaces": namespaces,
    }
    downstream = None if incoming_to is None else incoming_to.uuid
    if outgoing_from is not None:
        rows = await fetch_all(
            conn, OUTGOING, EdgeRow, upstream=outgoing_from.uuid, downstream=downstream, **where
        )
    elif downstream is not None:
        rows = await fetch_all(conn, INCOMING, EdgeRow, downstream=downstream, **where)
    else:
        rows = await fetch_all(conn, LIST_EDGES, EdgeRow, **where)
    return [edge_snapshot(row) for row in rows]
