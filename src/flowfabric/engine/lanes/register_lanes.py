"""Configured lanes are in the registry, also while they have no executions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.ids import check_lane

REGISTER_LANES: Final[LiteralString] = """
-- lanes.register_lanes
INSERT INTO ff.lane_registry (lane_id, registered_at_ms, registered_by)
SELECT lane, ff.now_ms(), %(registered_by)s::text FROM unnest(%(lanes)s::text[]) AS lane
 WHERE NOT EXISTS (SELECT FROM ff.lane_registry r WHERE r.lane_id = lane)
 ORDER BY lane
    ON CONFLICT DO NOTHING
"""


async def register_lanes(conn: Connection, lanes: Sequence[str], *, registered_by: str) -> None:
    """Each lane is in the registry; a lane that was there before stays as it is."""
    await execute(
        conn,
        REGISTER_LANES,
        lanes=sorted({check_lane(lane) for lane in lanes}),
        registered_by=registered_by,
    )
