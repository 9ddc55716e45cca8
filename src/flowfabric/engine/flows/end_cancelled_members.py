"""Members that a cancelled flow is still to end, end in batches."""

from __future__ import annotations

from uuid import UUID

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.cancel_backlog import AT_ONCE, HEADER, Backlog, end_members
from flowfabric.ids import uuid_partition


async def end_cancelled_members(
    conn: Connection, flow_id: UUID, *, limit: int = AT_ONCE, partitions: int = 256
) -> int:
    """End and ack at most `limit` members of one flow; how many were owed. Needs a transaction.

    A member that has ended meanwhile is acked and stays as it is.
    """
    backlog = await fetch_all(
        conn,
        HEADER,
        Backlog,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
    )
    return await end_members(conn, backlog[0], limit) if backlog else 0
