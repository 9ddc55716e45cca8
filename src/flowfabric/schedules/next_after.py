"""The instants of a schedule: strictly increasing, in milliseconds since the Unix epoch.

A cron expression that names hours and minutes means times of a clock: a time that the clock jumps
over is placed at the first instant after the gap, and of a time that the clock shows twice only the
first counts. Any other expression means a rhythm in real time: every instant at which the clock
shows a time that matches.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from flowfabric.instants import LAST_MS, epoch_ms, instant
from flowfabric.schedules.cron import is_fixed_time, next_wall
from flowfabric.schedules.spec import ScheduleSpec
from flowfabric.schedules.zones import change_within_days, offset_at, place, wall_of, zone_of
from flowfabric.states import ScheduleSpecKind

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)


# Many schedules have the same expression and are due at the same instant.
@lru_cache(maxsize=8192)
def next_after(spec: ScheduleSpec, after_ms: int) -> int | None:
    """The first instant of the schedule after this one; None if there is none.

    Raises `ValidationError` for a zone that is not known on this machine.
    """
    match spec.spec_kind:
        case ScheduleSpecKind.ONCE:
            assert spec.at is not None
            at_ms = epoch_ms(spec.at)
            found = at_ms if at_ms > after_ms else None
        case ScheduleSpecKind.INTERVAL:
            assert spec.every is not None
            every = spec.every // timedelta(milliseconds=1)
            anchor = 0 if spec.anchor is None else epoch_ms(spec.anchor)
            found = anchor + max(0, (after_ms - anchor) // every + 1) * every
        case ScheduleSpecKind.CRON:
            assert spec.cron is not None
            found = _next_of_cron(spec.cron, zone_of(spec.tz), instant(after_ms))
    return found if found is not None and found <= LAST_MS else None


def next_instants(
    spec: ScheduleSpec, after_ms: int, count: int, *, until_ms: int | None = None
) -> list[int]:
    """The next `count` instants, none later than `until_ms`."""
    found: list[int] = []
    last: int | None = after_ms
    while len(found) < count:
        last = next_after(spec, last)
        if last is None or (until_ms is not None and last > until_ms):
            break
        found.append(last)
    return found


def jitter_of(name: str, at_ms: int, jitter_ms: int) -> int:
    """By how many milliseconds the execution of this instant is delayed: less than `jitter_ms`.

    The same in every process.
    """
    if jitter_ms <= 0:
        return 0
    digest = hashlib.sha256(f"{name}\x1f{at_ms}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % jitter_ms


def _next_of_cron(cron: str, zone: ZoneInfo, after: datetime) -> int | None:
    try:
        found = (_next_time if is_fixed_time(cron) else _next_beat)(cron, zone, after)
    except OverflowError:  # the year 9999 is over
        return None
    return None if found is None else epoch_ms(found)


def _next_time(cron: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The next time of a clock, placed in real time."""
    wall = next_wall(cron, wall_of(zone, after))
    while wall is not None:
        at = place(zone, wall)
        if at > after:
            return at
        wall = next_wall(cron, wall)  # the repetition of an hour does not count
    return None


def _next_beat(cron: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The next instant at which the clock shows a time that matches."""
    start = after.replace(microsecond=0) + _SECOND
    while True:
        offset = offset_at(zone, start)
        wall = next_wall(cron, (start + offset - _SECOND).replace(tzinfo=None))
        if wall is None:
            return None
        at = wall.replace(tzinfo=UTC) - offset
        change = change_within_days(zone, start, at)
        if change is not None:  # from there on the clock shows other times
            start = change
        elif at - start <= 2 * _DAY:
            return at
        else:  # no time before `wall` matches, however the offset changes until then
            start = wall.replace(tzinfo=UTC) - _DAY
