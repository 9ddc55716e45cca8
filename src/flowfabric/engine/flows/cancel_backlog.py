"""The backlog of a cancelled flow: the members that its cancel has yet to end."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, execute, fetch_all, fetch_maybe, fetch_one
from flowfabric.engine.flows.cancel_flow_header import BY
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.park_members import park_members
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId
from flowfabric.states import CancellationPolicy, TerminalOutcome

AT_ONCE: Final = 500
"""Members that one transaction ends at most."""

LOCK_BACKLOG: Final[LiteralString] = """
-- flows.lock_backlog
SELECT partition_key, flow_id, reason, cancellation_policy FROM ff.cancel_backlog
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) FOR UPDATE
"""

LISTED: Final[LiteralString] = """
-- flows.end_members: the members that are still listed, passing over rows in use
SELECT m.execution_id, e.blocking_reason = 'paused_by_flow_cancel' AS parked
  FROM ff.cancel_backlog_member m JOIN ff.exec_core e USING (partition_key, execution_id)
 WHERE (m.partition_key, m.flow_id) = (%(partition_key)s, %(flow_id)s)
 ORDER BY m.execution_id LIMIT %(limit)s FOR NO KEY UPDATE OF e SKIP LOCKED
"""

ACK: Final[LiteralString] = """
-- flows.ack_members
DELETE FROM ff.cancel_backlog_member
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
   AND execution_id = ANY (%(execution_id)s::uuid[])
"""

DELETED: Final[LiteralString] = """
-- flows.end_members: listed members that do not exist any more
SELECT m.execution_id, false AS parked FROM ff.cancel_backlog_member m
 WHERE (m.partition_key, m.flow_id) = (%(partition_key)s, %(flow_id)s)
   AND NOT EXISTS (SELECT FROM ff.exec_core e
                    WHERE (e.partition_key, e.execution_id) = (m.partition_key, m.execution_id))
"""

PENDING: Final[LiteralString] = """
-- flows.count_pending_members
SELECT count(*) AS moved FROM ff.cancel_backlog_member
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
"""

HAND_OVER: Final[LiteralString] = """
-- flows.hand_over_backlog: the sweep ends the members from now on
UPDATE ff.cancel_backlog SET grace_until_ms = least(grace_until_ms, ff.now_ms())
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
"""

# A statement of its own: it must see that the last member was deleted.
CLOSE: Final[LiteralString] = """
-- flows.ack_members: the backlog itself, once it lists no member
DELETE FROM ff.cancel_backlog b
 WHERE (b.partition_key, b.flow_id) = (%(partition_key)s, %(flow_id)s)
   AND NOT EXISTS (SELECT FROM ff.cancel_backlog_member m
                    WHERE (m.partition_key, m.flow_id) = (b.partition_key, b.flow_id))
RETURNING 1 AS moved
"""


class Backlog(msgspec.Struct, frozen=True):
    """The backlog of one flow, with the reason and the policy of its cancel."""

    partition_key: int
    flow_id: UUID
    reason: str
    cancellation_policy: str


class EndedMembers(msgspec.Struct, frozen=True):
    """How many members were acked, and whether that closed the backlog."""

    members: int
    closed: bool


class _Member(msgspec.Struct, frozen=True):
    execution_id: UUID
    parked: bool


async def lock_backlog(conn: Connection, partition_key: int, flow_id: UUID) -> Backlog | None:
    """The backlog of the flow, locked until the transaction ends; None if it has none."""
    return await fetch_maybe(
        conn, LOCK_BACKLOG, Backlog, partition_key=partition_key, flow_id=flow_id
    )


async def end_members(conn: Connection, backlog: Backlog, limit: int) -> EndedMembers:
    """At most `limit` members have ended and are acked. The backlog is locked.

    A member that had ended before stays as it is. A member that another transaction has locked
    stays listed. Where members that run may finish, one that was locked when the flow was cancelled
    and runs now is acked without an end.
    """
    home, flow_id = backlog.partition_key, backlog.flow_id
    where = {"partition_key": home, "flow_id": flow_id}
    listed = await fetch_all(conn, LISTED, _Member, limit=limit, **where)
    free = await lock_executions(
        conn, [ExecutionId(home, each.execution_id) for each in listed], pass_over_locked=True
    )
    locked = {each.uuid for each in free}
    listed = [each for each in listed if each.execution_id in locked]
    if listed:
        ending = [ExecutionId(home, each.execution_id) for each in listed]
        if backlog.cancellation_policy != CancellationPolicy.CANCEL_ALL:
            parked = [each.parked for each in listed]
            others = [each for each, known in zip(ending, parked, strict=True) if not known]
            ending = [each for each, known in zip(ending, parked, strict=True) if known]
            if others:
                ending += await park_members(conn, others, also_running=False)
        await terminalize(
            conn, ending, outcome=TerminalOutcome.CANCELLED, reason=backlog.reason, by=BY
        )
    if len(listed) < limit:
        listed += await fetch_all(conn, DELETED, _Member, **where)
    closed = await ack_members(conn, home, flow_id, [each.execution_id for each in listed])
    return EndedMembers(len(listed), closed)


async def count_pending_members(conn: Connection, partition_key: int, flow_id: UUID) -> int:
    """How many members the backlog of the flow lists."""
    where = {"partition_key": partition_key, "flow_id": flow_id}
    return (await fetch_one(conn, PENDING, Moved, **where)).moved


async def hand_over_backlog(conn: Connection, partition_key: int, flow_id: UUID) -> None:
    """The sweep ends the members that are still listed, without waiting for the grace to end."""
    await execute(conn, HAND_OVER, partition_key=partition_key, flow_id=flow_id)


async def ack_members(
    conn: Connection, partition_key: int, flow_id: UUID, members: list[UUID]
) -> bool:
    """The backlog does not list these members any more; True if it had no other and is deleted."""
    where = {"partition_key": partition_key, "flow_id": flow_id}
    await execute(conn, ACK, execution_id=members, **where)
    return bool(await fetch_all(conn, CLOSE, Moved, **where))
