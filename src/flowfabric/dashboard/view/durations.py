"""Lengths of time, ages, instants and sizes as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def length(seconds: float | timedelta | None) -> str:
    """A length of time in at most two units: `350 ms`, `4.2 s`, `3 m 20 s`, `2 d 4 h`."""
    if seconds is None:
        return "\N{EN DASH}"
    found = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if found < 0:
        return "0 s"
    if found < 1:
        return f"{found * 1000:.0f} ms"
    if found < 10:
        return f"{found:.1f} s".replace(".0 s", " s")
    if found < 60:
        return f"{found:.0f} s"
    return _two_units(round(found))


def _two_units(seconds: int) -> str:
    for place, (size, name) in enumerate(_UNITS):
        if seconds >= size:
            count, rest = divmod(seconds, size)
            if rest and count < 10:
                smaller, word = _UNITS[place + 1]
                if rest >= smaller:
                    return f"{count} {name} {rest // smaller} {word}"
            return f"{count} {name}"
    return "0 s"


def relative(at: datetime, now: datetime) -> str:
    """How far the instant is from now: `3 m ago`, `in 2 h`, `now`."""
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    text = _one_unit(abs(seconds))
    return f"{text} ago" if seconds > 0 else f"in {text}"


def _one_unit(seconds: float) -> str:
    for size, name in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {name}"
    return "0 s"


def iso(at: datetime) -> str:
    """The instant for machines, in UTC."""
    return f"{at.astimezone(UTC).isoformat(timespec='milliseconds')[:23]}Z"


def absolute(at: datetime) -> str:
    """The instant for people, in UTC, with the zone named."""
    return f"{at.astimezone(UTC).isoformat(' ', 'seconds')[:19]} UTC"


def between(begin: datetime | None, end: datetime | None) -> float | None:
    """The seconds between two instants; None if one of them is not known."""
    return None if begin is None or end is None else (end - begin).total_seconds()


def size(count: int) -> str:
    """A number of bytes."""
    if count < 1024:
        return f"{count} B"
    if count < 1024 * 1024:
        return f"{count / 1024:.1f} KiB"
    return f"{count / 1024 / 1024:.1f} MiB"


def number(count: int) -> str:
    """A whole number with its thousands apart."""
    return f"{count:,}"


def as_length(given: timedelta) -> str:
    """The length as `parse_length` reads it; empty if it is none of whole seconds."""
    seconds = given.total_seconds()
    if seconds != int(seconds) or seconds < 0:
        return ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{int(seconds) // size}{unit}"
    return f"{int(seconds)}s"


def parse_length(text: str) -> timedelta | None:
    """`15m`, `24h`, `7d` as a length; None if it is none."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    count, unit = text[:-1], text[-1:]
    if unit not in units or not (count.isascii() and count.isdigit() and len(count) <= 6):
        return None
    return timedelta(seconds=int(count) * units[unit])


def rate(per_minute: float) -> str:
    """How often: `1,250 /min`, `4.2 /min`, `0.03 /min`."""
    if per_minute >= 10 or per_minute == 0:
        return f"{per_minute:,.0f} /min"
    return f"{per_minute:.1f} /min" if per_minute >= 1 else f"{per_minute:.2g} /min"
