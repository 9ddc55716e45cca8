"""Instants: milliseconds since the Unix epoch in the database, aware datetimes in Python."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload

from flowfabric.errors import invalid_input


@overload
def instant(ms: int) -> datetime: ...
@overload
def instant(ms: None) -> None: ...
@overload
def instant(ms: int | None) -> datetime | None: ...
def instant(ms: int | None) -> datetime | None:
    """The aware datetime `ms` milliseconds after the Unix epoch."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def check_instant(moment: datetime, *, field: str) -> datetime:
    """The moment, if it has a time zone; else raises `ValidationError(invalid_input)`."""
    if moment.tzinfo is None:
        raise invalid_input(field, moment.isoformat(), "must have a time zone")
    return moment


def epoch_ms(moment: datetime) -> int:
    """The milliseconds from the Unix epoch to an aware datetime."""
    return round(moment.timestamp() * 1000)
