"""active → runnable or terminal(failed): expired leases are voided, up to a cap."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.sql.expire_lease import expire_lease
from flowfabric.engine.lifecycle.sql.fence import LOCKED_COLUMNS

EXPIRE_LEASES: Final[LiteralString] = (
    f"""
-- lifecycle.expire_leases
WITH seen AS (        -- leases that have expired, passing over rows in use
    SELECT{LOCKED_COLUMNS}, NULL::integer AS given_cap
      FROM ff.exec_core e
     WHERE e.lifecycle_phase = 'active' AND e.lease_expires_at_ms <= ff.now_ms()
     ORDER BY e.attempt_started_at_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)"""
    + expire_lease("seen")
    + """
SELECT (SELECT count(*) FROM ended) + (SELECT count(*) FROM requeued) AS moved
"""
)


async def expire_leases(conn: Connection, limit: int) -> int:
    """Void at most `limit` expired leases; the writes of their holders are refused from now on.

    An execution whose leases were lost more often than its policy allows ends as failed with reason
    `max_reclaims_exceeded`, so that a handler that kills its workers does not run for ever.
    """
    return (await fetch_one(conn, EXPIRE_LEASES, Moved, limit=limit)).moved
