"""How much work ended in a window of time, how long it waited and how long it ran."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_one
from flowfabric.engine.activity.histogram import added, quantile
from flowfabric.engine.activity.store_activity import HOUR_MS, MINUTE_MS
from flowfabric.errors import invalid_input
from flowfabric.ids import check_lane, storable_text
from flowfabric.instants import instant
from flowfabric.pages import check_limit
from flowfabric.policy import milliseconds

MAX_STEPS: Final = 1000
LONGEST: Final = timedelta(days=30)

NOW: Final[LiteralString] = """
-- activity.read_activity: now
SELECT ff.now_ms() AS now_ms
"""

READ_ACTIVITY: Final[LiteralString] = """
-- activity.read_activity
SELECT (a.begins_at_ms - %(from_ms)s::bigint) / %(step_ms)s::bigint AS step, a.outcome,
       a.ended, a.waited, a.ran
  FROM ff.activity a JOIN ff.route r USING (route_id)
 WHERE a.begins_at_ms >= %(from_ms)s::bigint AND a.begins_at_ms < %(to_ms)s::bigint
   AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
   AND (%(lane_id)s::text IS NULL OR r.lane_id = %(lane_id)s)
   AND (%(execution_kind)s::text IS NULL OR r.execution_kind = %(execution_kind)s)
"""


class ActivityStep(msgspec.Struct, frozen=True, kw_only=True):
    """What ended in one step. Durations are seconds; None if nothing ended."""

    begins_at: datetime
    ended: dict[str, int]
    """By outcome; an outcome that did not occur is left out."""
    waited_p50: float | None
    """From submit to the first start."""
    waited_p95: float | None
    ran_p50: float | None
    """The last attempt."""
    ran_p95: float | None


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a window, the oldest first, and all of them together."""

    step: float
    """Seconds that a step lasts."""
    steps: list[ActivityStep]
    whole: ActivityStep


class _Now(msgspec.Struct, frozen=True):
    now_ms: int


class _Row(msgspec.Struct, frozen=True):
    step: int
    outcome: str
    ended: int
    waited: list[int]
    ran: list[int]


class _Sums:
    """The counts of a step."""

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        self.waited: list[int] = []
        self.ran: list[int] = []

    def add(self, row: _Row) -> None:
        self.ended[row.outcome] = self.ended.get(row.outcome, 0) + row.ended
        self.waited, self.ran = added(self.waited, row.waited), added(self.ran, row.ran)

    def step(self, begins_at_ms: int) -> ActivityStep:
        return ActivityStep(
            begins_at=instant(begins_at_ms),
            ended=self.ended,
            waited_p50=quantile(self.waited, 0.5),
            waited_p95=quantile(self.waited, 0.95),
            ran_p50=quantile(self.ran, 0.5),
            ran_p95=quantile(self.ran, 0.95),
        )


async def read_activity(
    conn: Connection,
    *,
    window: float | timedelta,
    steps: int = 60,
    namespace: str | None = None,
    lane_id: str | None = None,
    execution_kind: str | None = None,
) -> Activity:
    """What ended within the last `window`, in at most `steps` (1000) steps of equal length.

    A step is whole minutes, or whole hours in a window of more than a day. The sweep that counts is
    some seconds behind. Raises `ValidationError(invalid_input)` for a window over 30 days.
    """
    check_limit(steps, at_most=MAX_STEPS, field="steps")
    window_ms = milliseconds(window, field="window")
    if not MINUTE_MS <= window_ms <= milliseconds(LONGEST):
        raise invalid_input("window", window, "must be a minute to 30 days")
    if lane_id is not None:
        check_lane(lane_id)
    for field, text in (("namespace", namespace), ("execution_kind", execution_kind)):
        if text is not None:
            storable_text(text, field=field)
    unit = MINUTE_MS if window_ms <= 24 * HOUR_MS else HOUR_MS
    step_ms = -(-window_ms // (steps * unit)) * unit
    now = (await fetch_one(conn, NOW, _Now)).now_ms
    count = -(-window_ms // step_ms)
    end = (now // unit + 1) * unit
    begin = end - count * step_ms
    rows = await fetch_all(
        conn,
        READ_ACTIVITY,
        _Row,
        from_ms=begin,
        to_ms=end,
        step_ms=step_ms,
        namespace=namespace,
        lane_id=lane_id,
        execution_kind=execution_kind,
    )
    whole, sums = _Sums(), [_Sums() for _ in range(count)]
    for row in rows:
        whole.add(row)
        sums[row.step].add(row)
    return Activity(
        step=step_ms / 1000,
        steps=[each.step(begin + place * step_ms) for place, each in enumerate(sums)],
        whole=whole.step(begin),
    )
