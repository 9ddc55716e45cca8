"""How long the ended executions of a lane are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lanes.lane_version import check_lane_version
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import check_lane
from flowfabric.policy import milliseconds
from flowfabric.states import OperatorEventType

SET_LANE_RETENTION: Final[LiteralString] = """
-- lanes.set_lane_retention
WITH seen AS (        -- the lane, locked
    SELECT lane_id, retention_ms FROM ff.lane_registry WHERE lane_id = %(lane_id)s FOR UPDATE
), changed AS (
    UPDATE ff.lane_registry l SET retention_ms = %(retention_ms)s
      FROM seen WHERE l.lane_id = seen.lane_id
)
SELECT retention_ms FROM seen
"""

KEEP: Final = 0.0
"""The ended executions of the lane are kept for ever."""


class _Seen(msgspec.Struct, frozen=True):
    retention_ms: int | None


async def set_lane_retention(
    conn: Connection,
    lane_id: str,
    retention: float | timedelta | None,
    *,
    actor: str = DEFAULT_ACTOR,
    expected_version: str | None = None,
) -> None:
    """Ended executions of the lane are kept for `retention`; `KEEP`: for ever, None: the default.

    An operator event is written. Needs a transaction. Raises `NotFound`, and `StaleView` for a lane
    of another version than the expected.
    """
    check_lane(lane_id)
    check_actor(actor)
    retention_ms = None if retention is None else milliseconds(retention, field="retention")
    if retention_ms is not None and (retention_ms < 0 or (retention and retention_ms == 0)):
        given = retention.total_seconds() if isinstance(retention, timedelta) else retention
        raise invalid_input("retention", given, "must be 0, or at least a millisecond")
    await check_lane_version(conn, lane_id, expected_version)
    seen = await fetch_maybe(
        conn, SET_LANE_RETENTION, _Seen, lane_id=lane_id, retention_ms=retention_ms
    )
    if seen is None:
        raise NotFound("lane", lane_id)
    await operator_event(
        conn,
        OperatorEventType.LANE_RETENTION_CHANGED,
        actor=actor,
        reason=None,
        lane_id=lane_id,
        old_retention_ms=seen.retention_ms,
        new_retention_ms=retention_ms,
    )
