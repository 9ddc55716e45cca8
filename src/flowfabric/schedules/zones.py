"""Wall clocks of time zones: which instant a local time is, and when the offset changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from flowfabric.errors import invalid_input
from flowfabric.ids import check_name

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_LOOKED_AHEAD: Final = 2
"""Days in which a change of the offset is looked for; no zone changes it twice in a day."""


@lru_cache(maxsize=1024)
def zone_of(tz: str) -> ZoneInfo:
    """The zone of this IANA name; raises `ValidationError(invalid_input)`."""
    check_name(tz, field="tz")
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        raise invalid_input("tz", tz, "is not the name of a time zone, as Europe/Berlin") from None


def wall_of(zone: ZoneInfo, at: datetime) -> datetime:
    """What a clock in the zone shows at the instant, without a zone."""
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def offset_at(zone: ZoneInfo, at: datetime) -> timedelta:
    """How far the clock of the zone is ahead of UTC at the instant."""
    return at.astimezone(zone).utcoffset() or timedelta()


def place(zone: ZoneInfo, wall: datetime) -> datetime:
    """The instant at which the clock shows `wall`.

    The first of two, if the hour is repeated; the first instant after the gap, if the clock never
    shows it.
    """
    before = wall.replace(tzinfo=zone, fold=0)
    at = before.astimezone(UTC)
    if wall_of(zone, at) == wall:
        return at
    after = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return change_between(zone, min(at, after), max(at, after)) or at


def change_within_days(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    """The first instant after `start`, up to `end`, with another offset; two days are looked at."""
    for _ in range(_LOOKED_AHEAD):
        until = min(end, start + _DAY)
        change = change_between(zone, start, until)
        if change is not None or until == end:
            return change
        start = until
    return None


def change_between(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    """The first second in (`start`, `end`] at which the offset is not that of `start`."""
    before = offset_at(zone, start)
    if offset_at(zone, end) == before:
        return None
    while end - start > _SECOND:
        middle = start + (end - start) // 2
        middle = middle.replace(microsecond=0)
        if offset_at(zone, middle) == before:
            start = middle
        else:
            end = middle
    return end
