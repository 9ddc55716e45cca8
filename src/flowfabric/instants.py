"""Instants: milliseconds since the Unix epoch in the database, aware datetimes in Python."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, overload

from flowfabric.errors import invalid_input

LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: no datetime is later."""
_FIRST_MS: Final = -62_135_596_800_000


@overload
def instant(ms: int) -> datetime: ...
@overload
def instant(ms: None) -> None: ...
@overload
def instant(ms: int | None) -> datetime | None: ...
def instant(ms: int | None) -> datetime | None:
    """The aware datetime `ms` milliseconds after the Unix epoch; clamped to the years 1 to 9999."""
    if ms is None:
        return None
    if not _FIRST_MS <= ms <= LAST_MS:
        ms = _FIRST_MS if ms < 0 else LAST_MS
    return _at(ms)


@lru_cache(maxsize=2048)
def _at(ms: int) -> datetime:
    """Rows that are read together often have an instant in common."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def check_instant(moment: datetime, *, field: str) -> datetime:
    """The moment, if it has a time zone and is in the years 1970 to 9999 of UTC.

    Raises `ValidationError(invalid_input)` otherwise.
    """
    if not _is_datetime(moment):
        raise invalid_input(field, moment, "must be a datetime")
    if moment.tzinfo is UTC and 1970 <= moment.year < 9999:  # nearly every one
        return moment
    if moment.utcoffset() is None:
        raise invalid_input(field, moment.isoformat(), "must have a time zone")
    if not 0 <= epoch_ms(moment) <= LAST_MS:
        raise invalid_input(field, moment.isoformat(), "must be in the years 1970 to 9999")
    return moment


def _is_datetime(value: object) -> bool:
    return isinstance(value, datetime)


def epoch_ms(moment: datetime) -> int:
    """The milliseconds from the Unix epoch to an aware datetime."""
    return round(moment.timestamp() * 1000)


class _Counted:
    """Does the time of this process count?"""

    is_stopped = False


def seconds_since(moment: float) -> float:
    """The seconds that have passed since a moment of `time.monotonic()`."""
    return 0.0 if _Counted.is_stopped else time.monotonic() - moment


@contextlib.contextmanager
def time_stopped() -> Generator[None]:
    """While the block runs no time passes for `seconds_since`: for tests that stop their clock."""
    _Counted.is_stopped = True
    try:
        yield
    finally:
        _Counted.is_stopped = False
