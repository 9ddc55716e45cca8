"""A member is deleted from the backlog of its cancelled flow."""

from __future__ import annotations

from uuid import UUID

from flowfabric.db.rows import Connection
from flowfabric.engine.flows.cancel_backlog import ack_members, lock_backlog
from flowfabric.ids import ExecutionId, uuid_partition


async def ack_cancel_member(
    conn: Connection, flow_id: UUID, execution_id: ExecutionId, *, partitions: int = 256
) -> None:
    """The backlog of the flow does not list the member any more; needs a transaction.

    A flow without a backlog, or a member that is not listed, changes nothing.
    """
    home = uuid_partition(flow_id, partitions)
    await lock_backlog(conn, home, flow_id)
    await ack_members(conn, home, flow_id, [execution_id.uuid])
