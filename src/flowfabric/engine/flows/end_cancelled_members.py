"""Members that a cancelled flow owes an end get it, in batches, with their acks."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, execute, fetch_all, fetch_one
from flowfabric.engine.flows.cancel_flow_header import BY
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId, uuid_partition
from flowfabric.states import TerminalOutcome

AT_ONCE: Final = 500

BACKLOG: Final[LiteralString] = """
-- flows.cancel_backlog_due
SELECT count(*) AS moved
  FROM (SELECT FROM ff.cancel_backlog WHERE grace_until_ms <= ff.now_ms() LIMIT 1) AS found
"""

DUE: Final[LiteralString] = """
-- flows.reconcile_cancels
SELECT partition_key, flow_id, reason FROM ff.cancel_backlog
 WHERE grace_until_ms <= ff.now_ms()
 ORDER BY grace_until_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""

HEADER: Final[LiteralString] = """
-- flows.end_cancelled_members: the flow's backlog, one at a time
SELECT partition_key, flow_id, reason FROM ff.cancel_backlog
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) FOR UPDATE
"""

OWED: Final[LiteralString] = """
-- flows.end_cancelled_members: whom it owes an end
SELECT execution_id FROM ff.cancel_backlog_member
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
 ORDER BY execution_id LIMIT %(limit)s
"""

ACK: Final[LiteralString] = """
-- flows.ack_cancel_member
DELETE FROM ff.cancel_backlog_member
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
   AND execution_id = ANY (%(execution_id)s::uuid[])
"""

# A statement of its own: it must see that the last member is gone.
CLOSE: Final[LiteralString] = """
-- flows.ack_cancel_member: the header, once nobody is owed
DELETE FROM ff.cancel_backlog b
 WHERE (b.partition_key, b.flow_id) = (%(partition_key)s, %(flow_id)s)
   AND NOT EXISTS (SELECT FROM ff.cancel_backlog_member m
                    WHERE (m.partition_key, m.flow_id) = (b.partition_key, b.flow_id))
"""


class _Backlog(msgspec.Struct, frozen=True):
    partition_key: int
    flow_id: UUID
    reason: str


class _Member(msgspec.Struct, frozen=True):
    execution_id: UUID


async def cancel_backlog_due(conn: Connection) -> bool:
    """Is there a backlog whose grace is over?"""
    return (await fetch_one(conn, BACKLOG, Moved)).moved > 0


async def end_cancelled_members(
    conn: Connection, flow_id: UUID, *, limit: int = AT_ONCE, partitions: int = 256
) -> int:
    """End and ack at most `limit` members of one flow; how many were owed. Needs a transaction.

    A member that has ended meanwhile is acked and stays as it is.
    """
    backlog = await fetch_all(
        conn,
        HEADER,
        _Backlog,
        partition_key=uuid_partition(flow_id, partitions),
        flow_id=flow_id,
    )
    return await _end(conn, backlog[0], limit) if backlog else 0


async def reconcile_cancels(conn: Connection, limit: int = 50) -> int:
    """Finish what at most `limit` cancelled flows still owe after their grace; how many flows."""
    backlogs = await fetch_all(conn, DUE, _Backlog, limit=limit)
    for backlog in backlogs:
        await _end(conn, backlog, AT_ONCE)
    return len(backlogs)


async def ack_cancel_member(
    conn: Connection, flow_id: UUID, execution_id: ExecutionId, *, partitions: int = 256
) -> None:
    """The member is not owed an end any more; needs a transaction. Nothing there: nothing done."""
    home = uuid_partition(flow_id, partitions)
    await fetch_all(conn, HEADER, _Backlog, partition_key=home, flow_id=flow_id)
    await _ack(conn, _Backlog(home, flow_id, ""), [execution_id.uuid])


async def _end(conn: Connection, backlog: _Backlog, limit: int) -> int:
    where = {"partition_key": backlog.partition_key, "flow_id": backlog.flow_id}
    owed = await fetch_all(conn, OWED, _Member, limit=limit, **where)
    if owed:
        await terminalize(
            conn,
            [ExecutionId(backlog.partition_key, each.execution_id) for each in owed],
            outcome=TerminalOutcome.CANCELLED,
            reason=backlog.reason,
            by=BY,
        )
    await _ack(conn, backlog, [each.execution_id for each in owed])
    return len(owed)


async def _ack(conn: Connection, backlog: _Backlog, members: list[UUID]) -> None:
    where = {"partition_key": backlog.partition_key, "flow_id": backlog.flow_id}
    await execute(conn, ACK, execution_id=members, **where)
    await execute(conn, CLOSE, **where)
