"""Grants that ran out a while ago are removed."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

# For a minute a worker that comes too late hears that its grant ran out, not that it had none.
EXPIRE_GRANTS: Final[LiteralString] = """
-- grants.expire_grants
WITH stale AS (       -- the oldest first, passing over rows in use
    SELECT partition_key, grant_id FROM ff.claim_grant
     WHERE expires_at_ms < ff.now_ms() - 60000
     ORDER BY expires_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), swept AS (
    DELETE FROM ff.claim_grant g USING stale
     WHERE (g.partition_key, g.grant_id) = (stale.partition_key, stale.grant_id)
 RETURNING 1
)
SELECT count(*) AS moved FROM swept
"""


async def expire_grants(conn: Connection, limit: int) -> int:
    """Remove at most `limit` grants that ran out more than a minute ago; they reserve nothing."""
    return (await fetch_one(conn, EXPIRE_GRANTS, Moved, limit=limit)).moved
