"""A lane is paused, drained, disabled or made active again; its executions do not change."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lanes.lane_version import check_lane_version
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import check_lane, clean_text
from flowfabric.states import LaneState, OperatorEventType

SET_LANE_STATE: Final[LiteralString] = """
-- lanes.set_lane_state
WITH seen AS (        -- the lane, locked
    SELECT lane_id, lane_state FROM ff.lane_registry WHERE lane_id = %(lane_id)s FOR UPDATE
), changed AS (
    UPDATE ff.lane_registry l
       SET lane_state = %(lane_state)s, state_changed_at_ms = ff.now_ms(),
           state_changed_by = %(actor)s, state_reason = %(reason)s
      FROM seen WHERE l.lane_id = seen.lane_id AND seen.lane_state <> %(lane_state)s
 RETURNING l.lane_id
)
SELECT seen.lane_state AS old_state, EXISTS (SELECT FROM changed) AS changed,
       (SELECT count(ff.wake('lane:' || lane_id))  -- workers that wait for a lane that starts again
          FROM changed WHERE seen.lane_state IN ('paused', 'disabled')
           AND %(lane_state)s IN ('active', 'draining')) AS woken
  FROM seen
"""


class LaneChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The lane is in this state now; `old_state` is the same if nothing changed."""

    lane_id: str
    lane_state: LaneState
    old_state: LaneState


class _Seen(msgspec.Struct, frozen=True):
    old_state: str
    changed: bool
    woken: int


async def set_lane_state(
    conn: Connection,
    lane_id: str,
    lane_state: LaneState | str,
    *,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
    expected_version: str | None = None,
) -> LaneChanged:
    """Calls that begin from now on see the lane in this state; a change writes an operator event.

    A paused lane accepts executions and starts none. A draining lane accepts none and starts those
    that it has, until it is empty. A disabled lane accepts none and starts none. Running executions
    may end in every state. Needs a transaction. Raises `NotFound` for a lane that was never
    registered or submitted to, and `StaleView` for one of another version than the expected.
    """
    check_lane(lane_id)
    check_actor(actor)
    wanted = _lane_state(lane_state)
    await check_lane_version(conn, lane_id, expected_version)
    seen = await fetch_maybe(
        conn,
        SET_LANE_STATE,
        _Seen,
        lane_id=lane_id,
        lane_state=wanted.value,
        actor=actor,
        reason=None if reason is None else clean_text(reason),
    )
    if seen is None:
        raise NotFound("lane", lane_id)
    if seen.changed:
        await operator_event(
            conn,
            OperatorEventType.LANE_STATE_CHANGED,
            actor=actor,
            reason=reason,
            lane_id=lane_id,
            old_state=seen.old_state,
            new_state=wanted,
        )
    return LaneChanged(lane_id=lane_id, lane_state=wanted, old_state=LaneState(seen.old_state))


def _lane_state(state: str) -> LaneState:
    try:
        return LaneState(state)
    except ValueError:
        raise invalid_input("lane_state", state, f"is not one of {', '.join(LaneState)}") from None
