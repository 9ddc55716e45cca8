"""Sweep: how much of each budget is used now is noted, so that it can be drawn over time."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.config import activity_is_on
from flowfabric.db.rows import Connection, Moved, fetch_one

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

# Reports write nothing for it: their rows are read once a minute. A budget that nobody has created
# has no page, so its usage is not noted.
SAMPLE_BUDGET_USAGE: Final[LiteralString] = """
-- budgets.sample_budget_usage
WITH changed AS (     -- since it was noted last
    SELECT u.partition_key, u.budget_id, u.dimensions_key, u.current_value
      FROM ff.budget_policy p
      JOIN ff.budget_usage u
        ON (u.partition_key, u.budget_id) = (p.partition_key, p.budget_id)
     WHERE u.current_value IS DISTINCT FROM (
               SELECT h.used FROM ff.budget_usage_history h
                WHERE (h.partition_key, h.budget_id, h.dimensions_key)
                    = (u.partition_key, u.budget_id, u.dimensions_key)
                ORDER BY h.begins_at_ms DESC, h.step_ms LIMIT 1)
     LIMIT %(limit)s
), noted AS (
    INSERT INTO ff.budget_usage_history AS h (
           partition_key, budget_id, dimensions_key, begins_at_ms, step_ms, used, peak)
    SELECT partition_key, budget_id, dimensions_key,
           ff.now_ms() / %(minute_ms)s::bigint * %(minute_ms)s::bigint, %(minute_ms)s::bigint,
           current_value, current_value
      FROM changed ORDER BY partition_key, budget_id, dimensions_key
        ON CONFLICT (partition_key, budget_id, dimensions_key, begins_at_ms, step_ms) DO UPDATE
       SET used = EXCLUDED.used, peak = greatest(h.peak, EXCLUDED.peak)
 RETURNING 1
)
SELECT count(*) AS moved FROM noted
"""


async def sample_budget_usage(conn: Connection, limit: int) -> int:
    """Note the usage of at most `limit` dimensions that have changed; how many.

    With `FF_ACTIVITY=0` nothing is noted.
    """
    if not activity_is_on():
        return 0
    noted = await fetch_one(conn, SAMPLE_BUDGET_USAGE, Moved, limit=limit, minute_ms=MINUTE_MS)
    return noted.moved
