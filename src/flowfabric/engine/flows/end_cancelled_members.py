"""The members in the backlog of a cancelled flow end, in batches."""

from __future__ import annotations

from uuid import UUID

from flowfabric.db.rows import Connection
from flowfabric.engine.flows.cancel_backlog import AT_ONCE, end_members, lock_backlog
from flowfabric.ids import uuid_partition


async def end_cancelled_members(
    conn: Connection, flow_id: UUID, *, limit: int = AT_ONCE, partitions: int = 256
) -> int:
    """End and ack at most `limit` members of one flow; how many. Needs a transaction.

    A member that has ended meanwhile is acked and stays as it is; one that another transaction has
    locked stays listed.
    """
    backlog = await lock_backlog(conn, uuid_partition(flow_id, partitions), flow_id)
    return 0 if backlog is None else (await end_members(conn, backlog, limit)).members
