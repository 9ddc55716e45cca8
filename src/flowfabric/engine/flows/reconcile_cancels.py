"""The members in the backlogs of cancelled flows end once the grace of the cancel is over."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, execute, fetch_all, fetch_one
from flowfabric.engine.flows.cancel_backlog import AT_ONCE, Backlog, end_members

CANCEL_BACKLOG_DUE: Final[LiteralString] = """
-- flows.cancel_backlog_due
SELECT count(*) AS moved
  FROM (SELECT FROM ff.cancel_backlog WHERE grace_until_ms <= ff.now_ms() LIMIT 1) AS found
"""

DUE: Final[LiteralString] = """
-- flows.reconcile_cancels
SELECT partition_key, flow_id, reason, cancellation_policy FROM ff.cancel_backlog
 WHERE grace_until_ms <= ff.now_ms()
 ORDER BY grace_until_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
"""

LATER: Final[LiteralString] = """
-- flows.reconcile_cancels: flows whose members are all in use
UPDATE ff.cancel_backlog b SET grace_until_ms = ff.now_ms()
  FROM unnest(%(partition_key)s::smallint[], %(flow_id)s::uuid[])
       AS in_use (partition_key, flow_id)
 WHERE (b.partition_key, b.flow_id) = (in_use.partition_key, in_use.flow_id)
"""


async def cancel_backlog_due(conn: Connection) -> bool:
    """Is there a backlog whose grace is over?"""
    return (await fetch_one(conn, CANCEL_BACKLOG_DUE, Moved)).moved > 0


async def reconcile_cancels(conn: Connection, limit: int = 50) -> int:
    """End members of at most `limit` cancelled flows whose grace is over; how many flows.

    A flow is not counted if all of its members are in use. Such a flow comes after the others that
    are due, so that it does not take their place in the next batch.
    """
    moved, in_use = 0, list[Backlog]()
    for backlog in await fetch_all(conn, DUE, Backlog, limit=limit):
        ended = await end_members(conn, backlog, AT_ONCE)
        if ended.members or ended.closed:
            moved += 1
        else:
            in_use.append(backlog)
    if in_use:
        await execute(
            conn,
            LATER,
            partition_key=[backlog.partition_key for backlog in in_use],
            flow_id=[backlog.flow_id for backlog in in_use],
        )
    return moved
