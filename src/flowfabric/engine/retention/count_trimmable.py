"""How many executions `trim_retention` would delete; nothing changes."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.retention.trim import Trim, parameters

COUNT_TRIMMABLE: Final[LiteralString] = """
-- retention.count_trimmable
SELECT count(*) AS moved
  FROM ff.route r CROSS JOIN LATERAL (  -- route by route, as the index has them
       SELECT * FROM ff.exec_core e
        WHERE e.route_id = r.route_id AND e.lifecycle_phase = 'terminal' OFFSET 0) AS e
 WHERE r.lane_id = %(lane_id)s
   AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
   AND NOT (e.compensates AND e.terminal_outcome <> 'success')
   AND (e.flow_id IS NULL OR EXISTS (
            SELECT FROM ff.settled_flow s
             WHERE (s.partition_key, s.flow_id) = (e.partition_key, e.flow_id)))
   AND e.terminal_at_ms <= coalesce(%(now_ms)s, ff.now_ms()) - %(retention_ms)s::bigint
   AND (%(partition_key)s::smallint IS NULL OR e.partition_key = %(partition_key)s)
   AND (%(tag_key)s::text IS NULL OR e.tags ->> %(tag_key)s = %(tag_value)s::text)
"""


async def count_trimmable(conn: Connection, trim: Trim, *, now: datetime | None = None) -> int:
    """The number of executions that repeated calls of `trim_retention` would delete."""
    return (await fetch_one(conn, COUNT_TRIMMABLE, Moved, **parameters(trim, now))).moved
