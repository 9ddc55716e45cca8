"""pending → closed: waitpoints that no suspension used in time take no more signals."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

NEVER_COMMITTED: Final = "never_committed"
"""Why a waitpoint is closed that expired while no suspension waited for it."""

# An active waitpoint is left alone: the timeout of its suspension decides.
EXPIRE_PENDING_WAITPOINTS: Final[LiteralString] = """
-- suspensions.expire_pending_waitpoints
WITH due AS (         -- the longest overdue first, passing over rows in use
    SELECT partition_key, waitpoint_id FROM ff.waitpoint_pending
     WHERE state = 'pending' AND expires_at_ms <= ff.now_ms()
     ORDER BY expires_at_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), closed AS (        -- signals that came in time are kept: a handler may not have seen them yet
    UPDATE ff.waitpoint_pending w
       SET state = 'closed', closed_at_ms = ff.now_ms(), close_reason = %(reason)s::text
      FROM due
     WHERE (w.partition_key, w.waitpoint_id) = (due.partition_key, due.waitpoint_id)
 RETURNING 1
)
SELECT count(*) AS moved FROM closed
"""


async def expire_pending_waitpoints(conn: Connection, limit: int) -> int:
    """Close pending waitpoints whose time is over, at most `limit`; returns how many were."""
    moved = await fetch_one(
        conn, EXPIRE_PENDING_WAITPOINTS, Moved, limit=limit, reason=NEVER_COMMITTED
    )
    return moved.moved
