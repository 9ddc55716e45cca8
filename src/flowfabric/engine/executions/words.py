"""Instants, spans and numbers, as explanations write them."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.instants import instant


def at(ms: int | None) -> str:
    """An instant in UTC."""
    return "an unknown time" if ms is None else f"{instant(ms):%Y-%m-%d %H:%M:%S} UTC"


def span(ms: int) -> str:
    """A length of time, in the largest unit that it has at least two of."""
    seconds = max(0, ms) / 1000
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def counted(count: int, noun: str) -> str:
    """`1 attempt`, `2 attempts`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def times(count: int) -> str:
    """`once`, `2 times`."""
    return "once" if count == 1 else f"{count} times"


def listed(words: Sequence[str]) -> str:
    """The words, quoted, with commas."""
    return ", ".join(repr(word) for word in words) or "nothing special"
