"""Counts of durations by their order of magnitude: each bucket ends where the next one begins.

Bucket 0 has what took no millisecond. Bucket `n` has what took `2 ** ((n - 1) / 2)` milliseconds or
more, up to where the next one begins: two buckets for each doubling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

BUCKETS: Final = 64
"""The last bucket has everything from 25 days on."""


def begins_at(bucket: int) -> float:
    """The shortest duration of a bucket, in seconds."""
    return 0.0 if bucket == 0 else 2 ** ((bucket - 1) / 2) / 1000


def added(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The counts of both."""
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    found = list(longer)
    for place, count in enumerate(shorter):
        found[place] += count
    return found


def counted(buckets: Iterable[tuple[int, int]]) -> list[int]:
    """The histogram of pairs of a bucket and a count, without empty buckets at its end."""
    found: list[int] = []
    for bucket, count in buckets:
        found += [0] * (bucket + 1 - len(found))
        found[bucket] += count
    return found


def quantile(histogram: Sequence[int], share: float) -> float | None:
    """The duration in seconds that this share did not exceed, within its bucket by proportion."""
    total = sum(histogram)
    if total == 0:
        return None
    wanted, below = share * total, 0
    for bucket, count in enumerate(histogram):
        if count and below + count >= wanted:
            begin, end = begins_at(bucket), begins_at(bucket + 1)
            return begin + (end - begin) * (wanted - below) / count
        below += count
    return begins_at(len(histogram))
