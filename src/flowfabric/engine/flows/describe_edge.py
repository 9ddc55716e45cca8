"""One edge of a flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.flows.edge import EDGE_COLUMNS, EdgeRow, EdgeSnapshot, edge_snapshot
from flowfabric.ids import uuid_partition

DESCRIBE_EDGE: Final[LiteralString] = (
    "\n-- flows.describe_edge"
    + EDGE_COLUMNS
    + """ WHERE (e.partition_key, e.flow_id, e.edge_id)
     = (%(partition_key)s, %(flow_id)s, %(edge_id)s)
   AND (%(namespaces)s::text[] IS NULL
        OR EXISTS (SELECT FROM ff.flow_core f
                    WHERE (f.partition_key, f.flow_id) = (%(partition_key)s, %(flow_id)s)
                      AND f.namespace = ANY (%(namespaces)s::text[])))
"""
)


async def describe_edge(
    conn: Connection,
    flow_id: UUID,
    edge_id: UUID,
    *,
    namespaces: Sequence[str] | None = None,
    partitions: int = 256,
) -> EdgeSnapshot | None:
    """The edge; None if the flow has no edge of that id."""
    row = await fetch_maybe(
        conn,
        DESCRIBE_EDGE,
        EdgeRow,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
        edge_id=edge_id,
        namespaces=namespaces,
    )
    return None if row is None else edge_snapshot(row)
