"""Delete the registrations of waiters that ended without deregistering."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

EXPIRE_WAITERS: Final[LiteralString] = """
-- db.expire_waiters
WITH expired AS (     -- expired for a minute, skipping locked rows
    SELECT topic, waiter_id FROM ff.waiter WHERE waiting_until_ms < ff.now_ms() - 60000
     LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM ff.waiter w USING expired
     WHERE (w.topic, w.waiter_id) = (expired.topic, expired.waiter_id) RETURNING 1
)
SELECT count(*) AS moved FROM deleted
"""


async def expire_waiters(conn: Connection, limit: int) -> int:
    """Delete at most `limit` registrations that expired more than a minute ago."""
    return (await fetch_one(conn, EXPIRE_WAITERS, Moved, limit=limit)).moved
