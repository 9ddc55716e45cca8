"""Old rows of the ledger of schedules are deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.policy import milliseconds

KEPT: Final = timedelta(days=30)
MOST_KEPT: Final = 1000
"""Of one schedule."""

PRUNE_SCHEDULE_FIRES: Final[LiteralString] = """
-- schedules.prune_schedule_fires
WITH old AS (
    SELECT f.partition_key, f.namespace, f.name, f.fire_at_ms, f.trigger_id
      FROM ff.schedule_fire f
     WHERE f.recorded_at_ms <= ff.now_ms() - %(kept_ms)s::bigint
     ORDER BY f.recorded_at_ms LIMIT %(limit)s
), surplus AS (
    SELECT f.partition_key, f.namespace, f.name, f.fire_at_ms, f.trigger_id
      FROM ff.schedule s
     CROSS JOIN LATERAL (
           SELECT f.* FROM ff.schedule_fire f
            WHERE (f.partition_key, f.namespace, f.name) = (s.partition_key, s.namespace, s.name)
            ORDER BY f.fire_at_ms DESC, f.trigger_id DESC OFFSET %(most)s) AS f
     WHERE s.fired + s.skipped + s.missed > 1000  -- the condition of the index
     LIMIT %(limit)s
), locked AS (        -- passing over rows in use
    SELECT gone.* FROM (SELECT * FROM old UNION SELECT * FROM surplus) AS gone
     CROSS JOIN LATERAL (
           SELECT FROM ff.schedule_fire f
            WHERE (f.partition_key, f.namespace, f.name, f.fire_at_ms, f.trigger_id)
                = (gone.partition_key, gone.namespace, gone.name, gone.fire_at_ms,
                   gone.trigger_id)
           OFFSET 0 FOR UPDATE SKIP LOCKED) AS f
), deleted AS (
    DELETE FROM ff.schedule_fire f USING locked
     WHERE (f.partition_key, f.namespace, f.name, f.fire_at_ms, f.trigger_id)
         = (locked.partition_key, locked.namespace, locked.name, locked.fire_at_ms,
            locked.trigger_id)
 RETURNING 1
)
SELECT count(*) AS moved FROM deleted
"""


async def prune_schedule_fires(conn: Connection, limit: int) -> int:
    """At most `limit` rows that are too old, and as many of schedules with too many; how many."""
    pruned = await fetch_one(
        conn,
        PRUNE_SCHEDULE_FIRES,
        Moved,
        kept_ms=milliseconds(KEPT),
        most=MOST_KEPT,
        limit=limit,
    )
    return pruned.moved
