"""Counts of what ended are added to those that are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, execute

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

STORE_ACTIVITY: Final[LiteralString] = """
-- activity.store_activity
INSERT INTO ff.activity AS a (step_ms, begins_at_ms, route_id, outcome, ended, waited, ran)
SELECT %(step_ms)s::bigint, new.begins_at_ms, new.route_id, new.outcome, new.ended,
       string_to_array(new.waited, ',')::integer[], string_to_array(new.ran, ',')::integer[]
  FROM unnest(%(begins_at_ms)s::bigint[], %(route_id)s::bigint[], %(outcome)s::text[],
              %(ended)s::integer[], %(waited)s::text[], %(ran)s::text[])
      AS new (begins_at_ms, route_id, outcome, ended, waited, ran)
 ORDER BY new.begins_at_ms, new.route_id, new.outcome
    ON CONFLICT (step_ms, begins_at_ms, route_id, outcome) DO UPDATE
   SET ended = a.ended + EXCLUDED.ended,
       waited = ARRAY(SELECT coalesce(x, 0) + coalesce(y, 0)
                        FROM unnest(a.waited, EXCLUDED.waited) AS pair (x, y)),
       ran = ARRAY(SELECT coalesce(x, 0) + coalesce(y, 0)
                     FROM unnest(a.ran, EXCLUDED.ran) AS pair (x, y))
"""


class ActivityRow(msgspec.Struct, frozen=True):
    """How many executions of a route ended so in one minute or hour, and their durations."""

    begins_at_ms: int
    route_id: int
    outcome: str
    ended: int
    waited: Sequence[int]
    ran: Sequence[int]


async def store_activity(conn: Connection, rows: Sequence[ActivityRow], *, step_ms: int) -> None:
    """Add the rows, each of which is of another time, route or outcome."""
    if not rows:
        return
    await execute(
        conn,
        STORE_ACTIVITY,
        step_ms=step_ms,
        begins_at_ms=[row.begins_at_ms for row in rows],
        route_id=[row.route_id for row in rows],
        outcome=[row.outcome for row in rows],
        ended=[row.ended for row in rows],
        waited=[_text(row.waited) for row in rows],
        ran=[_text(row.ran) for row in rows],
    )


def _text(histogram: Sequence[int]) -> str:
    return ",".join(map(str, histogram))
