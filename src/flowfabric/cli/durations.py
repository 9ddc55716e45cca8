"""Durations as text: `90s`, `15m`, `12h`, `7d`, or a number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from flowfabric.errors import invalid_input

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)?")
_LONGEST: Final = timedelta(days=36_500)
_UNITS: Final = {
    "ms": "milliseconds",
    "s": "seconds",
    "m": "minutes",
    "h": "hours",
    "d": "days",
    "w": "weeks",
}


def duration(text: str, *, field: str) -> timedelta:
    """Parse a duration; raises `ValidationError(invalid_input)` that names the field."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise invalid_input(field, text, "must look like 90s, 15m, 12h or 7d")
    try:
        length = timedelta(**{_UNITS[found[2] or "s"]: float(found[1])})
    except OverflowError:
        length = timedelta.max
    if length > _LONGEST:
        raise invalid_input(field, text, "is longer than a century")
    return length


def spoken(length: timedelta) -> str:
    """The duration as text, in its largest whole unit."""
    seconds = length.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"
