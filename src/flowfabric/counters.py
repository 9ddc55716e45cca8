"""Counts of this process: plain numbers that a server can export as metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final


class EventCount:
    """A number that only grows, for each combination of labels."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str] = ()) -> None:
        self.name, self.meaning, self.labels = name, meaning, tuple(labels)
        self.values: Counter[tuple[str, ...]] = Counter()

    def add(self, *labels: str, count: int = 1) -> None:
        """So many more, with the values of the labels in their order."""
        self.values[labels] += count


class Distribution:
    """How many observations were at most as large as each bound, how many there were, their sum."""

    def __init__(self, name: str, meaning: str, bounds: Sequence[float]) -> None:
        self.name, self.meaning, self.bounds = name, meaning, tuple(bounds)
        self._within = [0] * (len(self.bounds) + 1)
        self.count, self.sum = 0, 0.0

    def observe(self, value: float) -> None:
        """One more observation."""
        self._within[bisect_left(self.bounds, value)] += 1
        self.count += 1
        self.sum += value

    @property
    def buckets(self) -> list[tuple[float, int]]:
        """For each bound, how many observations were at most as large."""
        total, found = 0, list[tuple[float, int]]()
        for bound, within in zip(self.bounds, self._within, strict=False):
            total += within
            found.append((bound, total))
        return found


JOURNAL_ENTRIES: Final = EventCount(
    "ff_journal_entries_total", "Entries that were recorded in journals.", ("kind", "state")
)
JOURNAL_FLUSH_SECONDS: Final = Distribution(
    "ff_journal_flush_seconds",
    "How long it took to record entries, many together.",
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
JOURNAL_FLUSH_SIZE: Final = Distribution(
    "ff_journal_flush_size",
    "How many entries were recorded together.",
    (1, 2, 5, 10, 20, 50, 100, 200, 500),
)
REPLAYED_ENTRIES: Final = EventCount(
    "ff_replayed_entries_total", "Recorded entries that answered a call of a handler again."
)
DIVERGENCES: Final = EventCount(
    "ff_divergences_total", "Handlers that made other durable calls than before.", ("kind",)
)
BUDGET_HITS: Final = EventCount(
    "ff_budget_hit_total", "Executions that a spent budget held back.", ("dimension",)
)
BUDGET_BREACHES: Final = EventCount(
    "ff_budget_breach_total", "Reports of usage that passed a limit.", ("dimension", "limit")
)
QUOTA_HITS: Final = EventCount(
    "ff_quota_hit_total", "Executions that a limit held back or refused.", ("reason",)
)

COUNTERS: Final = (
    JOURNAL_ENTRIES,
    JOURNAL_FLUSH_SECONDS,
    JOURNAL_FLUSH_SIZE,
    REPLAYED_ENTRIES,
    DIVERGENCES,
    BUDGET_HITS,
    BUDGET_BREACHES,
    QUOTA_HITS,
)
"""All counters of a process."""
