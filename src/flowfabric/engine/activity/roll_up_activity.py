"""Sweep: completions are counted by minute, route and outcome, each once.

Ids of events become visible out of order. So a pass notes the newest id and a transaction id, and
only a later pass counts up to there: once every transaction from before has ended, no event up to
that id can appear any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.config import activity_is_on
from flowfabric.db.rows import Connection, execute, fetch_all, fetch_maybe, fetch_one
from flowfabric.engine.activity.histogram import BUCKETS, counted
from flowfabric.engine.activity.store_activity import MINUTE_MS, ActivityRow, store_activity

# Is there anything to count, or a new id to note?
ACTIVITY_DUE: Final[LiteralString] = """
-- activity.activity_due
SELECT newest.event_id > coalesce(place.next_event_id, 0)
       OR coalesce(place.next_event_id > place.event_id, false) AS due
  FROM (SELECT coalesce(max(event_id), 0) AS event_id FROM ff.completion_event) AS newest
  LEFT JOIN ff.activity_place place ON true
"""

ENSURE_PLACE: Final[LiteralString] = """
-- activity.roll_up_activity: there is a place
INSERT INTO ff.activity_place (singleton, event_id, next_event_id, next_xid)
VALUES (true, 0, 0, 0) ON CONFLICT DO NOTHING
"""

# An id that no transaction has had yet is one of the server from which the database was restored.
LOCK_PLACE: Final[LiteralString] = """
-- activity.roll_up_activity: locks the place
SELECT event_id, next_event_id,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= next_xid
       OR pg_snapshot_xmax(pg_current_snapshot())::text::bigint < next_xid AS settled
  FROM ff.activity_place FOR UPDATE SKIP LOCKED
"""

# How long executions waited is from their submit to their first start, and how long they ran is the
# time of their last attempt. An execution that was deleted meanwhile is counted without both.
COUNT: Final[LiteralString] = """
-- activity.roll_up_activity: counts
WITH ended AS (
    SELECT c.occurred_at_ms / %(minute_ms)s::bigint * %(minute_ms)s::bigint AS begins_at_ms,
           c.route_id, c.outcome, e.started_at_ms - e.created_at_ms AS waited_ms,
           c.occurred_at_ms - e.attempt_started_at_ms AS ran_ms
      FROM ff.completion_event c
      LEFT JOIN ff.exec_core e
        ON (e.partition_key, e.execution_id) = (c.partition_key, c.execution_id)
     WHERE c.event_id > %(after)s AND c.event_id <= %(upto)s AND c.outcome <> 'resumable'
)
SELECT begins_at_ms, route_id, outcome,
       CASE WHEN waited_ms < 1 THEN 0 WHEN waited_ms >= 1 THEN
           least(1 + floor(2 * ln(waited_ms::float8) / ln(2::float8) + 1e-9), %(last)s::float8)
           END::integer AS waited,
       CASE WHEN ran_ms < 1 THEN 0 WHEN ran_ms >= 1 THEN
           least(1 + floor(2 * ln(ran_ms::float8) / ln(2::float8) + 1e-9), %(last)s::float8)
           END::integer AS ran,
       count(*)::integer AS ended
  FROM ended GROUP BY 1, 2, 3, 4, 5
"""

# A transaction has its id before its events have theirs. One that writes an event below the
# newest that is visible now has an id below the first that is not used now.
MOVE_ON: Final[LiteralString] = """
-- activity.roll_up_activity: moves on
UPDATE ff.activity_place p
   SET event_id = %(event_id)s,
       next_event_id = CASE WHEN %(event_id)s < p.next_event_id THEN p.next_event_id
                            ELSE greatest(newest.event_id, p.next_event_id) END,
       next_xid = CASE WHEN %(event_id)s < p.next_event_id THEN p.next_xid
                       ELSE pg_snapshot_xmax(pg_current_snapshot())::text::bigint END
  FROM (SELECT coalesce(max(event_id), 0) AS event_id FROM ff.completion_event) AS newest
"""

EVENTS_AT_ONCE: Final = 10
"""Ids that are counted together, for each row of a batch."""


class _Due(msgspec.Struct, frozen=True):
    due: bool


class _Place(msgspec.Struct, frozen=True):
    event_id: int
    next_event_id: int
    settled: bool


class _Counted(msgspec.Struct, frozen=True):
    begins_at_ms: int
    route_id: int
    outcome: str
    waited: int | None
    ran: int | None
    ended: int


async def activity_due(conn: Connection) -> bool:
    """Is there a completion that is not counted? Never with `FF_ACTIVITY=0`."""
    return activity_is_on() and (await fetch_one(conn, ACTIVITY_DUE, _Due)).due


async def roll_up_activity(conn: Connection, limit: int) -> int:
    """Count completions that are settled, and note up to where the next pass may count.

    At most ten times `limit` ids are counted; the answer is how many were. Needs a transaction.
    """
    await execute(conn, ENSURE_PLACE)
    place = await fetch_maybe(conn, LOCK_PLACE, _Place)
    if place is None:  # another pass runs now
        return 0
    if place.event_id < place.next_event_id and not place.settled:
        return 0
    upto = min(place.next_event_id, place.event_id + EVENTS_AT_ONCE * limit)
    found = await fetch_all(
        conn,
        COUNT,
        _Counted,
        after=place.event_id,
        upto=upto,
        minute_ms=MINUTE_MS,
        last=BUCKETS - 1,
    )
    rows = _rows(found)
    await store_activity(conn, rows, step_ms=MINUTE_MS)
    await execute(conn, MOVE_ON, event_id=upto)
    return upto - place.event_id


def _rows(found: Sequence[_Counted]) -> list[ActivityRow]:
    groups: dict[tuple[int, int, str], list[_Counted]] = {}
    for each in found:
        groups.setdefault((each.begins_at_ms, each.route_id, each.outcome), []).append(each)
    return [
        ActivityRow(
            *key,
            sum(each.ended for each in group),
            counted((each.waited, each.ended) for each in group if each.waited is not None),
            counted((each.ran, each.ended) for each in group if each.ran is not None),
        )
        for key, group in groups.items()
    ]
