"""Instants: stored as milliseconds of the database's clock, spoken as aware datetimes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload


@overload
def instant(ms: int) -> datetime: ...
@overload
def instant(ms: None) -> None: ...
@overload
def instant(ms: int | None) -> datetime | None: ...
def instant(ms: int | None) -> datetime | None:
    """The moment `ms` milliseconds after the Unix epoch."""
    return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)


def epoch_ms(moment: datetime) -> int:
    """An aware moment as milliseconds since the Unix epoch."""
    return round(moment.timestamp() * 1000)
