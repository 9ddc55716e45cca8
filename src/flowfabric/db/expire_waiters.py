"""Registrations of waiters that ended without deregistering are deleted."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

EXPIRE_WAITERS: Final[LiteralString] = """
-- db.expire_waiters
WITH gone AS (        -- expired for a minute, passing over rows in use
    SELECT topic, waiter_id FROM ff.waiter WHERE waiting_until_ms < ff.now_ms() - 60000
     LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), swept AS (
    DELETE FROM ff.waiter w USING gone
     WHERE (w.topic, w.waiter_id) = (gone.topic, gone.waiter_id) RETURNING 1
)
SELECT count(*) AS moved FROM swept
"""


async def expire_waiters(conn: Connection, limit: int) -> int:
    """Delete at most `limit` registrations that expired more than a minute ago."""
    return (await fetch_one(conn, EXPIRE_WAITERS, Moved, limit=limit)).moved
