"""What a monitor wants to know of the whole database: how much waits, and for how long."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lanes.count_by_lane import LaneCount, count_by_lane
from flowfabric.instants import instant

# Both are small while the sweeps run: completions are dispatched at once, and members of a
# cancelled flow end in batches of hundreds. The partial index of undispatched completions is read.
READ_GAUGES: Final[LiteralString] = """
-- lanes.read_gauges
SELECT ff.now_ms() AS now_ms,
       (SELECT count(*) FROM (
               SELECT FROM ff.completion_event
                WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL ORDER BY event_id) AS found)
           AS undispatched,
       (SELECT count(*) FROM ff.cancel_backlog_member) AS cancel_backlog
"""


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """The lanes with their executions that have not ended, and what is still to be dispatched."""

    read_at: datetime
    """On the clock of the database."""
    lanes: list[LaneCount]
    undispatched: int
    """Completions of flow members that no join has been told of."""
    cancel_backlog: int
    """Members of cancelled flows that are still to be ended."""


class _Counts(msgspec.Struct, frozen=True):
    now_ms: int
    undispatched: int
    cancel_backlog: int


async def read_gauges(conn: Connection) -> Gauges:
    """The numbers that are exported as gauges; needs a snapshot."""
    lanes = await count_by_lane(conn)
    counts = await fetch_one(conn, READ_GAUGES, _Counts)
    return Gauges(
        read_at=instant(counts.now_ms),
        lanes=lanes,
        undispatched=counts.undispatched,
        cancel_backlog=counts.cancel_backlog,
    )
