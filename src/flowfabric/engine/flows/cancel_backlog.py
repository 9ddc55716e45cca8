"""The backlog of a cancelled flow: members that are still to end."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all
from flowfabric.engine.flows.cancel_flow_header import BY
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId
from flowfabric.states import TerminalOutcome

AT_ONCE: Final = 500

HEADER: Final[LiteralString] = """
-- flows.cancel_backlog: the flow's backlog, one at a time
SELECT partition_key, flow_id, reason FROM ff.cancel_backlog
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) FOR UPDATE
"""

OWED: Final[LiteralString] = """
-- flows.cancel_backlog: whom it owes an end
SELECT execution_id FROM ff.cancel_backlog_member
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
 ORDER BY execution_id LIMIT %(limit)s
"""

ACK: Final[LiteralString] = """
-- flows.cancel_backlog
DELETE FROM ff.cancel_backlog_member
 WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s)
   AND execution_id = ANY (%(execution_id)s::uuid[])
"""

# A statement of its own: it must see that the last member is gone.
CLOSE: Final[LiteralString] = """
-- flows.cancel_backlog: the header, once nobody is owed
DELETE FROM ff.cancel_backlog b
 WHERE (b.partition_key, b.flow_id) = (%(partition_key)s, %(flow_id)s)
   AND NOT EXISTS (SELECT FROM ff.cancel_backlog_member m
                    WHERE (m.partition_key, m.flow_id) = (b.partition_key, b.flow_id))
"""


class Backlog(msgspec.Struct, frozen=True):
    partition_key: int
    flow_id: UUID
    reason: str


class BacklogMember(msgspec.Struct, frozen=True):
    execution_id: UUID


async def end_members(conn: Connection, backlog: Backlog, limit: int) -> int:
    where = {"partition_key": backlog.partition_key, "flow_id": backlog.flow_id}
    owed = await fetch_all(conn, OWED, BacklogMember, limit=limit, **where)
    if owed:
        await terminalize(
            conn,
            [ExecutionId(backlog.partition_key, each.execution_id) for each in owed],
            outcome=TerminalOutcome.CANCELLED,
            reason=backlog.reason,
            by=BY,
        )
    await ack_members(conn, backlog, [each.execution_id for each in owed])
    return len(owed)


async def ack_members(conn: Connection, backlog: Backlog, members: list[UUID]) -> None:
    where = {"partition_key": backlog.partition_key, "flow_id": backlog.flow_id}
    await execute(conn, ACK, execution_id=members, **where)
    await execute(conn, CLOSE, **where)
