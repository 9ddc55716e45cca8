"""The backlog of a cancelled flow: the members that its cancel has yet to end."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all, fetch_maybe
from flowfabric.engine.flows.cancel_flow_header import BY
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId
from flowfabric.states import TerminalOutcome

AT_ONCE: Final = 500
"""Members that one transaction ends at most."""

LOCK_BACKLOG: Final[LiteralString] = """
-- flows.lock_backlog
SELECT partition_key, flow_id, reason FROM ff.cancel_backlog
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) FOR UPDATE
"""

LISTED: Final[LiteralString] = """
-- flows.end_members: the members that are still listed
SELECT execution_id FROM ff.cancel_backlog_member
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
 ORDER BY execution_id LIMIT %(limit)s
"""

ACK: Final[LiteralString] = """
-- flows.ack_members
DELETE FROM ff.cancel_backlog_member
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
   AND execution_id = ANY (%(execution_id)s::uuid[])
"""

# A statement of its own: it must see that the last member was deleted.
CLOSE: Final[LiteralString] = """
-- flows.ack_members: the backlog itself, once it lists no member
DELETE FROM ff.cancel_backlog b
 WHERE (b.partition_key, b.flow_id) = (%(partition_key)s, %(flow_id)s)
   AND NOT EXISTS (SELECT FROM ff.cancel_backlog_member m
                    WHERE (m.partition_key, m.flow_id) = (b.partition_key, b.flow_id))
"""


class Backlog(msgspec.Struct, frozen=True):
    """The backlog of one flow, and the reason of its cancel."""

    partition_key: int
    flow_id: UUID
    reason: str


class _Member(msgspec.Struct, frozen=True):
    execution_id: UUID


async def lock_backlog(conn: Connection, partition_key: int, flow_id: UUID) -> Backlog | None:
    """The backlog of the flow, locked until the transaction ends; None if it has none."""
    return await fetch_maybe(
        conn, LOCK_BACKLOG, Backlog, partition_key=partition_key, flow_id=flow_id
    )


async def end_members(conn: Connection, backlog: Backlog, limit: int) -> int:
    """At most `limit` members have ended and are acked; how many. The backlog is locked.

    A member that had ended before stays as it is.
    """
    home, flow_id = backlog.partition_key, backlog.flow_id
    listed = await fetch_all(
        conn, LISTED, _Member, partition_key=home, flow_id=flow_id, limit=limit
    )
    if listed:
        await terminalize(
            conn,
            [ExecutionId(home, each.execution_id) for each in listed],
            outcome=TerminalOutcome.CANCELLED,
            reason=backlog.reason,
            by=BY,
        )
    await ack_members(conn, home, flow_id, [each.execution_id for each in listed])
    return len(listed)


async def ack_members(
    conn: Connection, partition_key: int, flow_id: UUID, members: list[UUID]
) -> None:
    """The backlog does not list these members any more; one without members is deleted."""
    where = {"partition_key": partition_key, "flow_id": flow_id}
    await execute(conn, ACK, execution_id=members, **where)
    await execute(conn, CLOSE, **where)
