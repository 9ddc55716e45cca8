"""Sweep: how much of each budget is used now is noted, so that it can be drawn over time."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.config import activity_is_on
from flowfabric.db.rows import Connection, Moved, fetch_one

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

LATE_MS: Final = 5 * MINUTE_MS
"""For so long usage is compared again: a report is seen only once its transaction has ended."""

# Reports write nothing for it. There is no index on the instants of usage, which every report would
# have to change: the table is read page by page, and only what was changed since the last note is
# compared with it. A budget that nobody has created has no page, so its usage is not noted.
SAMPLE_BUDGET_USAGE: Final[LiteralString] = """
-- budgets.sample_budget_usage
WITH recent AS MATERIALIZED (   -- the longest ago first; those of one instant together
    SELECT u.partition_key, u.budget_id, u.dimensions_key, u.current_value, u.updated_at_ms
      FROM ff.budget_usage u
     WHERE u.updated_at_ms > coalesce((SELECT noted_up_to_ms FROM ff.budget_usage_place), 0)
     ORDER BY u.updated_at_ms FETCH FIRST %(limit)s ROWS WITH TIES
), noted AS (
    INSERT INTO ff.budget_usage_history AS h (
           partition_key, budget_id, dimensions_key, begins_at_ms, step_ms, used, peak)
    SELECT u.partition_key, u.budget_id, u.dimensions_key,
           ff.now_ms() / %(minute_ms)s::bigint * %(minute_ms)s::bigint, %(minute_ms)s::bigint,
           u.current_value, u.current_value
      FROM recent u
     WHERE u.current_value IS DISTINCT FROM (
               SELECT h.used FROM ff.budget_usage_history h
                WHERE (h.partition_key, h.budget_id, h.dimensions_key)
                    = (u.partition_key, u.budget_id, u.dimensions_key)
                ORDER BY h.begins_at_ms DESC, h.step_ms LIMIT 1)
       AND EXISTS (SELECT FROM ff.budget_policy p
                    WHERE (p.partition_key, p.budget_id) = (u.partition_key, u.budget_id) OFFSET 0)
     ORDER BY u.partition_key, u.budget_id, u.dimensions_key
        ON CONFLICT (partition_key, budget_id, dimensions_key, begins_at_ms, step_ms) DO UPDATE
       SET used = EXCLUDED.used, peak = greatest(h.peak, EXCLUDED.peak)
 RETURNING 1
), counted AS (
    SELECT count(*) AS n, max(updated_at_ms) AS last_ms FROM recent
), moved_on AS (      -- after the last batch, some minutes are left for the next note
    INSERT INTO ff.budget_usage_place AS p (singleton, noted_up_to_ms)
    SELECT true, CASE WHEN n < %(limit)s THEN ff.now_ms() - %(late_ms)s::bigint ELSE last_ms END
      FROM counted
        ON CONFLICT (singleton) DO UPDATE SET noted_up_to_ms = EXCLUDED.noted_up_to_ms
)
SELECT CASE WHEN n < %(limit)s THEN (SELECT count(*) FROM noted) ELSE n END AS moved FROM counted
"""


async def sample_budget_usage(conn: Connection, limit: int) -> int:
    """Note the usage of dimensions that have changed; how many, or how many were looked at.

    At most `limit` are looked at, and those that were changed in the same millisecond as the last
    of them. With `FF_ACTIVITY=0` nothing is noted.
    """
    if not activity_is_on():
        return 0
    noted = await fetch_one(
        conn,
        SAMPLE_BUDGET_USAGE,
        Moved,
        limit=limit,
        minute_ms=MINUTE_MS,
        late_ms=LATE_MS,
    )
    return noted.moved
