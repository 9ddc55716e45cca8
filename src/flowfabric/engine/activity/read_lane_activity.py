"""How many executions ended on each lane in a window of time, step by step."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.activity.store_activity import HOUR_MS, MINUTE_MS
from flowfabric.errors import invalid_input
from flowfabric.ids import storable_text
from flowfabric.policy import milliseconds

# Steps are counted back from the end of the minute that runs now.
READ_LANE_ACTIVITY: Final[LiteralString] = """
-- activity.read_lane_activity
WITH now AS (
    SELECT (ff.now_ms() / 60000 + 1) * 60000 AS end_ms
)
SELECT r.lane_id, ((now.end_ms - a.begins_at_ms - 1) / 60000)::integer AS minutes_ago,
       sum(a.ended)::bigint AS ended
  FROM now CROSS JOIN ff.activity a JOIN ff.route r USING (route_id)
 WHERE a.begins_at_ms >= (SELECT end_ms FROM now) - %(window_ms)s::bigint
   AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
 GROUP BY r.lane_id, minutes_ago
"""


class _Row(msgspec.Struct, frozen=True):
    lane_id: str
    minutes_ago: int
    ended: int


async def read_lane_activity(
    conn: Connection, *, window: float | timedelta, namespace: str | None = None
) -> dict[str, list[int]]:
    """By lane: how many ended in each minute of the last `window`, the oldest minute first.

    A lane on which nothing ended is left out. The sweep that counts is some seconds behind. Raises
    `ValidationError(invalid_input)` for a window under a minute or over a day.
    """
    window_ms = milliseconds(window, field="window")
    if not MINUTE_MS <= window_ms <= 24 * HOUR_MS:
        raise invalid_input("window", window, "must be a minute to a day")
    if namespace is not None:
        storable_text(namespace, field="namespace")
    minutes = window_ms // MINUTE_MS
    found: dict[str, list[int]] = {}
    rows = await fetch_all(
        conn,
        READ_LANE_ACTIVITY,
        _Row,
        window_ms=minutes * MINUTE_MS,
        namespace=namespace,
    )
    for row in rows:
        steps = found.setdefault(row.lane_id, [0] * minutes)
        if 0 <= row.minutes_ago < minutes:
            steps[minutes - 1 - row.minutes_ago] += row.ended
    return found
