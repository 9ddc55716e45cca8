"""Sweep: usage by minute becomes usage by hour after a day, and is deleted after 30 days.

The last figure of a dimension stays: it is still what is used.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.budgets.sample_budget_usage import HOUR_MS, MINUTE_MS
from flowfabric.policy import milliseconds

MINUTES_KEPT: Final = timedelta(hours=24)
KEPT: Final = timedelta(days=30)

# The oldest minutes first: what is added to an hour later is later.
COMPACT_BUDGET_USAGE: Final[LiteralString] = """
-- budgets.compact_budget_usage
WITH old AS (
    SELECT ctid FROM ff.budget_usage_history
     WHERE step_ms = %(minute_ms)s AND begins_at_ms < ff.now_ms() - %(minutes_kept_ms)s::bigint
     ORDER BY begins_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM ff.budget_usage_history h USING old WHERE h.ctid = old.ctid
 RETURNING h.partition_key, h.budget_id, h.dimensions_key, h.begins_at_ms, h.used, h.peak
), stored AS (        -- the last usage of the hour, and the highest
    INSERT INTO ff.budget_usage_history AS h (
           partition_key, budget_id, dimensions_key, begins_at_ms, step_ms, used, peak)
    SELECT partition_key, budget_id, dimensions_key,
           begins_at_ms / %(hour_ms)s::bigint * %(hour_ms)s::bigint AS hour, %(hour_ms)s::bigint,
           (array_agg(used ORDER BY begins_at_ms DESC))[1], max(peak)
      FROM taken GROUP BY partition_key, budget_id, dimensions_key, hour
     ORDER BY partition_key, budget_id, dimensions_key, hour
        ON CONFLICT (partition_key, budget_id, dimensions_key, begins_at_ms, step_ms) DO UPDATE
       SET used = EXCLUDED.used, peak = greatest(h.peak, EXCLUDED.peak)
), expired AS (
    SELECT ctid FROM ff.budget_usage_history
     WHERE step_ms = %(hour_ms)s AND begins_at_ms < ff.now_ms() - %(kept_ms)s::bigint
     ORDER BY begins_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM ff.budget_usage_history h USING expired WHERE h.ctid = expired.ctid
 RETURNING h.partition_key, h.budget_id, h.dimensions_key, h.begins_at_ms, h.used
), unchanged AS (     -- usage that has been the same since is noted anew
    INSERT INTO ff.budget_usage_history (
           partition_key, budget_id, dimensions_key, begins_at_ms, step_ms, used, peak)
    SELECT DISTINCT ON (d.partition_key, d.budget_id, d.dimensions_key)
           d.partition_key, d.budget_id, d.dimensions_key,
           ff.now_ms() / %(hour_ms)s::bigint * %(hour_ms)s::bigint, %(hour_ms)s::bigint,
           d.used, d.used
      FROM deleted d
     WHERE NOT EXISTS (SELECT FROM ff.budget_usage_history h
                        WHERE (h.partition_key, h.budget_id, h.dimensions_key)
                            = (d.partition_key, d.budget_id, d.dimensions_key)
                          AND h.begins_at_ms > d.begins_at_ms OFFSET 0)
     ORDER BY d.partition_key, d.budget_id, d.dimensions_key
        ON CONFLICT DO NOTHING
)
SELECT (SELECT count(*) FROM taken) + (SELECT count(*) FROM deleted) AS moved
"""


async def compact_budget_usage(conn: Connection, limit: int) -> int:
    """Add minutes to their hours, and delete old hours; at most `limit` of each, how many."""
    moved = await fetch_one(
        conn,
        COMPACT_BUDGET_USAGE,
        Moved,
        minute_ms=MINUTE_MS,
        hour_ms=HOUR_MS,
        minutes_kept_ms=milliseconds(MINUTES_KEPT),
        kept_ms=milliseconds(KEPT),
        limit=limit,
    )
    return moved.moved
