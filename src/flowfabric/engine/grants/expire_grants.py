"""Grants that expired more than a minute ago are deleted."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

# For a minute a late worker gets `ClaimGrantExpired`, which says more than `InvalidClaimGrant`.
EXPIRE_GRANTS: Final[LiteralString] = """
-- grants.expire_grants
WITH stale AS (       -- the oldest first, passing over rows in use
    SELECT partition_key, grant_id FROM ff.claim_grant
     WHERE expires_at_ms < ff.now_ms() - 60000
     ORDER BY expires_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM ff.claim_grant g USING stale
     WHERE (g.partition_key, g.grant_id) = (stale.partition_key, stale.grant_id)
 RETURNING 1
)
SELECT count(*) AS moved FROM deleted
"""


async def expire_grants(conn: Connection, limit: int) -> int:
    """Delete at most `limit` grants that expired more than a minute ago; they reserve nothing."""
    return (await fetch_one(conn, EXPIRE_GRANTS, Moved, limit=limit)).moved
