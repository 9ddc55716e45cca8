"""The members in the backlogs of cancelled flows end once the grace of the cancel is over."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_all, fetch_one
from flowfabric.engine.flows.cancel_backlog import AT_ONCE, Backlog, end_members

CANCEL_BACKLOG_DUE: Final[LiteralString] = """
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


async def cancel_backlog_due(conn: Connection) -> bool:
    """Is there a backlog whose grace is over?"""
    return (await fetch_one(conn, CANCEL_BACKLOG_DUE, Moved)).moved > 0


async def reconcile_cancels(conn: Connection, limit: int = 50) -> int:
    """End members of at most `limit` cancelled flows whose grace is over; how many flows."""
    backlogs = await fetch_all(conn, DUE, Backlog, limit=limit)
    for backlog in backlogs:
        await end_members(conn, backlog, AT_ONCE)
    return len(backlogs)
