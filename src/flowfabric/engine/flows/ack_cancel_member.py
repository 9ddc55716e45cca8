"""A member leaves the backlog of its cancelled flow."""

from __future__ import annotations

from uuid import UUID

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.flows.cancel_backlog import HEADER, Backlog, ack_members
from flowfabric.ids import ExecutionId, uuid_partition


async def ack_cancel_member(
    conn: Connection, flow_id: UUID, execution_id: ExecutionId, *, partitions: int = 256
) -> None:
    """The member is not owed an end any more; needs a transaction. Nothing there: nothing done."""
    home = uuid_partition(flow_id, partitions)
    await fetch_all(conn, HEADER, Backlog, partition_key=home, flow_id=flow_id)
    await ack_members(conn, Backlog(home, flow_id, ""), [execution_id.uuid])
