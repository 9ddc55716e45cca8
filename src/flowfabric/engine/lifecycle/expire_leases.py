"""active → runnable or terminal(failed): leases that ran out go back to the pool, up to a cap."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.sql.end import RUNG
from flowfabric.engine.lifecycle.sql.expire_lease import LAPSE
from flowfabric.engine.lifecycle.sql.fence import STANDING
from flowfabric.engine.lifecycle.sql.requeue import CALLED

EXPIRE_LEASES: Final[LiteralString] = (
    """
-- lifecycle.expire_leases
WITH seen AS (        -- leases that ran out, passing over rows in use
    SELECT"""
    + STANDING
    + """, NULL::integer AS given_cap
      FROM ff.exec_core e
     WHERE e.lifecycle_phase = 'active' AND e.lease_expires_at_ms <= ff.now_ms()
     ORDER BY e.attempt_started_at_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), """
    + LAPSE
    + """
SELECT (SELECT count(*) FROM ended) + (SELECT count(*) FROM left_over) AS moved
 WHERE """
    + RUNG
    + """ AND """
    + CALLED
)


async def expire_leases(conn: Connection, limit: int) -> int:
    """Take back at most `limit` lapsed leases; their holders' writes are refused from now on.

    An execution whose leases were lost more often than its policy bears ends as failed with reason
    `max_reclaims_exceeded`, so that one that kills its workers does not go on for ever.
    """
    return (await fetch_one(conn, EXPIRE_LEASES, Moved, limit=limit)).moved
