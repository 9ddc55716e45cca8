"""Instants: stored as milliseconds of the database's clock, spoken as aware datetimes."""

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
    """The moment `ms` milliseconds after the Unix epoch."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def check_instant(moment: datetime, *, field: str) -> datetime:
    """The moment, if it carries a time zone."""
    if moment.tzinfo is None:
        raise invalid_input(field, moment.isoformat(), "must carry a time zone")
    return moment


def epoch_ms(moment: datetime) -> int:
    """An aware moment as milliseconds since the Unix epoch."""
    return round(moment.timestamp() * 1000)
