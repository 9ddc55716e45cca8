"""The lanes there are, with what waits, runs and is delayed on each."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import check_lane
from flowfabric.instants import instant

LIST_LANES: Final[LiteralString] = """
-- lanes.list_lanes
SELECT lane_id FROM ff.lane_registry
 WHERE %(cursor)s::text IS NULL OR lane_id > %(cursor)s::text
 ORDER BY lane_id LIMIT %(limit)s
"""

# Every count walks a partial index of what has not ended; history is not read.
LANE_COUNTS: Final[LiteralString] = """
-- lanes.count_by_lane
WITH open_ AS (       -- what waits, is delayed or runs
    SELECT route_id, public_state, created_at_ms FROM ff.exec_core
     WHERE eligibility_state = 'eligible_now'
     UNION ALL
    SELECT route_id, public_state, created_at_ms FROM ff.exec_core
     WHERE delay_until_ms IS NOT NULL
     UNION ALL
    SELECT route_id, public_state, created_at_ms FROM ff.exec_core
     WHERE lifecycle_phase = 'active'
), counted AS (       -- by route, of which there are few
    SELECT route_id,
           count(*) FILTER (WHERE public_state IN ('waiting', 'resumable')) AS waiting,
           count(*) FILTER (WHERE public_state = 'delayed') AS delayed,
           count(*) FILTER (WHERE public_state = 'active') AS active,
           min(created_at_ms) FILTER (WHERE public_state IN ('waiting', 'resumable')) AS oldest_ms
      FROM open_ GROUP BY route_id
)
SELECT l.lane_id, l.registered_at_ms, coalesce(sum(c.waiting), 0)::bigint AS waiting,
       coalesce(sum(c.delayed), 0)::bigint AS delayed, coalesce(sum(c.active), 0)::bigint AS active,
       min(c.oldest_ms) AS oldest_ms
  FROM ff.lane_registry l
  LEFT JOIN ff.route r USING (lane_id)
  LEFT JOIN counted c USING (route_id)
 GROUP BY l.lane_id, l.registered_at_ms ORDER BY l.lane_id
"""


class LanePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some lanes, and the cursor for the next page if there is one."""

    lanes: list[str]
    next_cursor: str | None


class LaneCount(msgspec.Struct, frozen=True, kw_only=True):
    """What is open on one lane."""

    lane_id: str
    registered_at: datetime
    waiting: int
    delayed: int
    active: int
    oldest_waiting_since: datetime | None


class _Lane(msgspec.Struct, frozen=True):
    lane_id: str


class _Count(msgspec.Struct, frozen=True):
    lane_id: str
    registered_at_ms: int
    waiting: int
    delayed: int
    active: int
    oldest_ms: int | None


async def list_lanes(conn: Connection, *, cursor: str | None = None, limit: int = 100) -> LanePage:
    """At most `limit` lanes after `cursor`, in the order of their names."""
    if limit < 0:
        raise invalid_input("limit", limit, "must not be negative")
    if limit == 0:
        return LanePage(lanes=[], next_cursor=None)
    rows = await fetch_all(conn, LIST_LANES, _Lane, cursor=cursor, limit=limit + 1)
    lanes = [_stored(row.lane_id) for row in rows[:limit]]
    return LanePage(lanes=lanes, next_cursor=lanes[-1] if len(rows) > limit else None)


async def count_by_lane(conn: Connection) -> list[LaneCount]:
    """Every lane with its open executions by state."""
    rows = await fetch_all(conn, LANE_COUNTS, _Count)
    return [
        LaneCount(
            lane_id=row.lane_id,
            registered_at=instant(row.registered_at_ms),
            waiting=row.waiting,
            delayed=row.delayed,
            active=row.active,
            oldest_waiting_since=instant(row.oldest_ms),
        )
        for row in rows
    ]


def _stored(lane_id: str) -> str:
    try:
        return check_lane(lane_id)
    except ValidationError as error:
        raise ValidationError("corruption", f"lane_registry: lane_id: {error.detail}") from None
