"""The counters of a process as values, which can be stored and added up."""

from __future__ import annotations

import platform
from collections.abc import Iterable

import msgspec

from flowfabric.counters import (
    BUILD_INFO,
    COUNTERS,
    READ_FROM_DATABASE,
    Distribution,
    EventCount,
    Labels,
    Level,
)
from flowfabric.version import __version__

_NOT_ADDED = frozenset(each.name for each in (*READ_FROM_DATABASE, BUILD_INFO))


class Count(msgspec.Struct, frozen=True, array_like=True):
    """One number of a counter or a level."""

    name: str
    labels: Labels
    value: float


class Buckets(msgspec.Struct, frozen=True, array_like=True):
    """One distribution: how many observations are in each bucket, and their sum."""

    name: str
    labels: Labels
    within: list[int]
    sum: float


class Snapshot(msgspec.Struct, frozen=True):
    """The counters of one process, or of several."""

    counts: list[Count] = []
    levels: list[Count] = []
    """Only while their process lives."""
    buckets: list[Buckets] = []

    def without_levels(self) -> Snapshot:
        """What stays true after the process has ended."""
        return Snapshot(counts=self.counts, buckets=self.buckets)


def snapshot() -> Snapshot:
    """The counters of this process as they are now."""
    BUILD_INFO.replace({(__version__, platform.python_version()): 1})
    taken = Snapshot([], [], [])
    for each in COUNTERS:
        match each:
            case EventCount():
                taken.counts.extend(Count(each.name, *found) for found in each.snapshot().items())
            case Level():
                taken.levels.extend(Count(each.name, *found) for found in each.snapshot().items())
            case Distribution():
                taken.buckets.extend(
                    Buckets(each.name, labels, within, total)
                    for labels, (within, total) in each.snapshot().items()
                )
    return taken


def added(snapshots: Iterable[Snapshot]) -> Snapshot:
    """All of them together; of a level that is the same in every process, the largest."""
    counts: dict[tuple[str, Labels], float] = {}
    levels: dict[tuple[str, Labels], float] = {}
    buckets: dict[tuple[str, Labels], Buckets] = {}
    for each in snapshots:
        for count in each.counts:
            key = (count.name, count.labels)
            counts[key] = counts.get(key, 0) + count.value
        for level in each.levels:
            key = (level.name, level.labels)
            before = levels.get(key, 0)
            levels[key] = (
                max(before, level.value) if level.name in _NOT_ADDED else before + level.value
            )
        for found in each.buckets:
            key = (found.name, found.labels)
            buckets[key] = _merged(buckets[key], found) if key in buckets else found
    return Snapshot(
        counts=[Count(*key, value) for key, value in counts.items()],
        levels=[Count(*key, value) for key, value in levels.items()],
        buckets=list(buckets.values()),
    )


def _merged(one: Buckets, other: Buckets) -> Buckets:
    within = [a + b for a, b in zip(one.within, other.within, strict=True)]
    return Buckets(one.name, one.labels, within, one.sum + other.sum)
