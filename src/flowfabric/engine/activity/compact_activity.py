"""Sweep: counts of minutes become counts of hours after a day, and are deleted after 30 days."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_all, fetch_one
from flowfabric.engine.activity.histogram import added
from flowfabric.engine.activity.store_activity import HOUR_MS, ActivityRow, store_activity
from flowfabric.policy import milliseconds

MINUTES_KEPT: Final = timedelta(hours=24)
KEPT: Final = timedelta(days=30)

TAKE_MINUTES: Final[LiteralString] = """
-- activity.compact_activity: takes minutes
WITH old AS (
    SELECT ctid FROM ff.activity
     WHERE step_ms < %(hour_ms)s AND begins_at_ms < ff.now_ms() - %(minutes_kept_ms)s::bigint
     ORDER BY begins_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
DELETE FROM ff.activity a USING old WHERE a.ctid = old.ctid
RETURNING a.begins_at_ms, a.route_id, a.outcome, a.ended, a.waited, a.ran
"""

DELETE_OLD: Final[LiteralString] = """
-- activity.compact_activity: deletes what is too old
WITH old AS (
    SELECT ctid FROM ff.activity
     WHERE step_ms = %(hour_ms)s AND begins_at_ms < ff.now_ms() - %(kept_ms)s::bigint
     ORDER BY begins_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM ff.activity a USING old WHERE a.ctid = old.ctid RETURNING 1
)
SELECT count(*) AS moved FROM deleted
"""

ACTIVITY_OLD: Final[LiteralString] = """
-- activity.activity_old
SELECT EXISTS (SELECT FROM ff.activity
                WHERE begins_at_ms < ff.now_ms()
                      - CASE step_ms WHEN %(hour_ms)s THEN %(kept_ms)s::bigint
                                     ELSE %(minutes_kept_ms)s::bigint END) AS due
"""


class _Due(msgspec.Struct, frozen=True):
    due: bool


async def activity_old(conn: Connection) -> bool:
    """Are there counts that are older than they are kept?"""
    found = await fetch_one(
        conn,
        ACTIVITY_OLD,
        _Due,
        hour_ms=HOUR_MS,
        kept_ms=milliseconds(KEPT),
        minutes_kept_ms=milliseconds(MINUTES_KEPT),
    )
    return found.due


async def compact_activity(conn: Connection, limit: int) -> int:
    """Add counts of minutes to their hours, and delete old hours; at most `limit` of each.

    Needs a transaction.
    """
    minutes = await fetch_all(
        conn,
        TAKE_MINUTES,
        ActivityRow,
        hour_ms=HOUR_MS,
        minutes_kept_ms=milliseconds(MINUTES_KEPT),
        limit=limit,
    )
    hours: dict[tuple[int, int, str], ActivityRow] = {}
    for row in minutes:
        key = (row.begins_at_ms // HOUR_MS * HOUR_MS, row.route_id, row.outcome)
        was = hours.get(key, ActivityRow(*key, 0, [], []))
        hours[key] = ActivityRow(
            *key, was.ended + row.ended, added(was.waited, row.waited), added(was.ran, row.ran)
        )
    await store_activity(conn, list(hours.values()), step_ms=HOUR_MS)
    deleted = await fetch_one(
        conn, DELETE_OLD, Moved, hour_ms=HOUR_MS, kept_ms=milliseconds(KEPT), limit=limit
    )
    return len(minutes) + deleted.moved
