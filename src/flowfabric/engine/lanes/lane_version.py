"""The version of a lane: it changes with the state and the retention, and not with what waits."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.errors import StaleView
from flowfabric.instants import instant

LOCK_LANE: Final[LiteralString] = """
-- lanes.lane_version
SELECT lane_state, state_changed_at_ms, retention_ms FROM ff.lane_registry
 WHERE lane_id = %(lane_id)s FOR UPDATE
"""


class _Lane(msgspec.Struct, frozen=True):
    lane_state: str
    state_changed_at_ms: int | None
    retention_ms: int | None


def lane_version(
    lane_state: str, *, state_changed_at_ms: int | None, retention_ms: int | None
) -> str:
    """The version of a lane with these settings."""
    kept = "default" if retention_ms is None else f"{retention_ms:x}"
    return f"{lane_state}.{state_changed_at_ms or 0:x}.{kept}"


async def check_lane_version(conn: Connection, lane_id: str, expected: str | None) -> None:
    """The lane is locked and has the version; None is any version, and nothing is done.

    Raises `StaleView`. A lane that does not exist is left to the caller.
    """
    if expected is None:
        return
    found = await fetch_maybe(conn, LOCK_LANE, _Lane, lane_id=lane_id)
    if found is None:
        return
    current = lane_version(
        found.lane_state,
        state_changed_at_ms=found.state_changed_at_ms,
        retention_ms=found.retention_ms,
    )
    if current != expected:
        changed_at = instant(found.state_changed_at_ms)
        raise StaleView("lane", lane_id, changed_at=changed_at)
