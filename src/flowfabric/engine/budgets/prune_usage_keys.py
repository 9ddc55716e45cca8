"""Keys of reports are deleted once they do not count any more."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

PRUNE_USAGE_KEYS: Final[LiteralString] = """
-- budgets.prune_usage_keys
WITH expired AS (     -- passing over those that a report takes over now
    SELECT partition_key, budget_id, dedup_key FROM ff.budget_usage_dedup
     WHERE expires_at_ms < ff.now_ms()
     ORDER BY expires_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM ff.budget_usage_dedup d USING expired
     WHERE (d.partition_key, d.budget_id, d.dedup_key)
         = (expired.partition_key, expired.budget_id, expired.dedup_key)
 RETURNING d.partition_key
)
SELECT count(*) AS moved FROM deleted
"""


async def prune_usage_keys(conn: Connection, limit: int) -> int:
    """Delete at most `limit` keys that have expired; how many."""
    return (await fetch_one(conn, PRUNE_USAGE_KEYS, Moved, limit=limit)).moved
