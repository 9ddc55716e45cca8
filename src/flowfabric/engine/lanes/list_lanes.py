"""The registered lanes, page by page."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import ValidationError
from flowfabric.ids import check_lane
from flowfabric.pages import page_size

LIST_LANES: Final[LiteralString] = """
-- lanes.list_lanes
SELECT lane_id FROM ff.lane_registry
 WHERE %(cursor)s::text IS NULL OR lane_id > %(cursor)s::text
 ORDER BY lane_id LIMIT %(limit)s
"""


class LanePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some lanes, and the cursor for the next page if there is one."""

    lanes: list[str]
    next_cursor: str | None


class _Lane(msgspec.Struct, frozen=True):
    lane_id: str


async def list_lanes(conn: Connection, *, cursor: str | None = None, limit: int = 100) -> LanePage:
    """At most `limit` lanes after `cursor`, in the order of their names."""
    if page_size(limit) == 0:
        return LanePage(lanes=[], next_cursor=None)
    rows = await fetch_all(conn, LIST_LANES, _Lane, cursor=cursor, limit=limit + 1)
    lanes = [check_stored_lane(row.lane_id) for row in rows[:limit]]
    return LanePage(lanes=lanes, next_cursor=lanes[-1] if len(rows) > limit else None)


def check_stored_lane(lane_id: str) -> str:
    """The lane, if it is valid; raises `ValidationError(corruption)`."""
    try:
        return check_lane(lane_id)
    except ValidationError as error:
        raise ValidationError("corruption", f"lane_registry: lane_id: {error.detail}") from None
