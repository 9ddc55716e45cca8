"""Counts of this process: plain numbers, which `flowfabric.metrics` exports.

They are counted in any thread and cost well under a microsecond. Nothing here knows how they are
exported.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, TypeAlias

from flowfabric.at_commit import at_commit, in_transaction

Labels: TypeAlias = tuple[str, ...]
"""The values of the labels of one counter, in their order."""


class EventCount:
    """A number that only grows, for each combination of labels."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str] = ()) -> None:
        self.name, self.meaning, self.labels = name, meaning, tuple(labels)
        self.values: Counter[Labels] = Counter()
        self._lock = threading.Lock()
        if not labels:
            self.values[()] = 0  # it is exported from the start, so that a rate of it is seen

    def add(self, *labels: str, count: int = 1) -> None:
        """So many more, with the values of the labels in their order.

        What a transaction adds counts once it is committed.
        """
        if in_transaction():
            at_commit(partial(self._add, labels, count))
            return
        with self._lock:
            self.values[labels] += count

    def add_all(self, each: Iterable[Labels]) -> None:
        """One more for each of these labels."""
        for labels, count in Counter(each).items():
            self.add(*labels, count=count)

    def _add(self, labels: Labels, count: int) -> None:
        with self._lock:
            self.values[labels] += count

    def snapshot(self) -> dict[Labels, int]:
        """The numbers as they are now."""
        with self._lock:
            return dict(self.values)


class Observed:
    """The observations of one distribution with the same labels."""

    __slots__ = ("count", "sum", "within")

    def __init__(self, bounds: int) -> None:
        self.within = [0] * (bounds + 1)
        """How many observations are in each bucket; the last one has no bound."""
        self.count, self.sum = 0, 0.0


class Distribution:
    """How many observations were at most as large as each bound, how many there were, their sum."""

    def __init__(
        self, name: str, meaning: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self.name, self.meaning = name, meaning
        self.bounds, self.labels = tuple(bounds), tuple(labels)
        self._lock = threading.Lock()
        self._observed: dict[Labels, Observed] = {}
        if not labels:
            self._observed[()] = Observed(len(self.bounds))

    def observe(self, value: float, *labels: str) -> None:
        """One more observation, with the values of the labels in their order."""
        place = bisect_left(self.bounds, value)
        with self._lock:
            found = self._observed.get(labels)
            if found is None:
                found = self._observed[labels] = Observed(len(self.bounds))
            found.within[place] += 1
            found.count += 1
            found.sum += value

    @property
    def count(self) -> int:
        """How many observations there were, with any labels."""
        return sum(each.count for each in self._observed.values())

    @property
    def sum(self) -> float:
        """The sum of the observations, with any labels."""
        return sum(each.sum for each in self._observed.values())

    @property
    def buckets(self) -> list[tuple[float, int]]:
        """For each bound, how many observations with any labels were at most as large."""
        total, found = 0, list[tuple[float, int]]()
        for place, bound in enumerate(self.bounds):
            total += sum(each.within[place] for each in self._observed.values())
            found.append((bound, total))
        return found

    def snapshot(self) -> dict[Labels, tuple[list[int], float]]:
        """For each combination of labels how many are in each bucket, and the sum."""
        with self._lock:
            return {key: (list(each.within), each.sum) for key, each in self._observed.items()}


class ObservationCount(EventCount):
    """How many observations a distribution has, for each combination of its labels."""

    def __init__(self, name: str, meaning: str, distribution: Distribution) -> None:
        super().__init__(name, meaning, distribution.labels)
        self._distribution = distribution

    def snapshot(self) -> dict[Labels, int]:
        observed = self._distribution.snapshot()
        return {labels: sum(within) for labels, (within, _) in observed.items()}


class Level:
    """A number that goes up and down, for each combination of labels."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str] = ()) -> None:
        self.name, self.meaning, self.labels = name, meaning, tuple(labels)
        self._lock = threading.Lock()
        self._values: dict[Labels, float] = {}

    def change(self, by: float) -> None:
        """So much more, or less; for a level without labels."""
        with self._lock:
            self._values[()] = self._values.get((), 0.0) + by

    def replace(self, values: Mapping[Labels, float]) -> None:
        """These are the numbers now; combinations of labels that are missing are gone."""
        with self._lock:
            self._values = dict(values)

    def snapshot(self) -> dict[Labels, float]:
        """The numbers as they are now."""
        with self._lock:
            return dict(self._values)


_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# Requests of the server.

HTTP_REQUEST_SECONDS: Final = Distribution(
    "ff_http_request_duration_seconds",
    "How long requests took.",
    _SECONDS,
    ("method", "path", "status"),
)
HTTP_REQUESTS: Final = ObservationCount(
    "ff_http_requests_total",
    "Requests that were answered; path is the template of the route, or unknown.",
    HTTP_REQUEST_SECONDS,
)
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


def count_request(method: str, path: str | None, status: int, seconds: float) -> None:
    """A request was answered; `path` is the template of its route, None if it has none."""
    HTTP_REQUEST_SECONDS.observe(seconds, *_request_labels(method, path, status))


@lru_cache(maxsize=4096)  # there are as many as routes, methods and statuses
def _request_labels(method: str, path: str | None, status: int) -> Labels:
    return (method if method in _METHODS else "OTHER", path or "unknown", str(status))


# Sweeps.

SCANNER_CYCLES: Final = EventCount(
    "ff_scanner_cycle_total", "Runs of a sweep that found something due.", ("scanner",)
)
SCANNER_CYCLE_SECONDS: Final = Distribution(
    "ff_scanner_cycle_duration_seconds",
    "How long a run of a sweep took.",
    _SECONDS,
    ("scanner",),
)

# Claims, leases and attempts.

CLAIM_BATCH_SIZE: Final = Distribution(
    "ff_claim_batch_size",
    "How many executions one claim of a worker leased; 0 if there was none.",
    (0, 1, 2, 5, 10, 20, 50, 100, 200, 500),
)
CLAIM_FROM_GRANT_SECONDS: Final = Distribution(
    "ff_claim_from_grant_duration_seconds",
    "How long a claim with a grant took.",
    _SECONDS,
    ("lane",),
)
LEASE_RENEWALS: Final = EventCount(
    "ff_lease_renewal_total",
    "Renewals of leases: ok, or err if it was refused or the database did not answer.",
    ("outcome",),
)
ATTEMPT_OUTCOMES: Final = EventCount(
    "ff_attempt_outcome_total",
    "Attempts that ended: ok, error, timeout, cancelled, or retry if another one follows.",
    ("lane", "outcome"),
)
WORKER_AT_CAPACITY: Final = EventCount(
    "ff_worker_at_capacity_total",
    "How often all slots of a worker were taken, so that it stopped to claim.",
)

# Limits.

BUDGET_HITS: Final = EventCount(
    "ff_budget_hit_total", "Executions that a spent budget held back.", ("dimension",)
)
BUDGET_BREACHES: Final = EventCount(
    "ff_budget_breach_total", "Reports of usage that passed a limit.", ("dimension", "limit")
)
QUOTA_HITS: Final = EventCount(
    "ff_quota_hit_total", "Executions that a limit held back or refused.", ("reason",)
)

# Joins.

EDGE_GROUP_POLICIES: Final = EventCount(
    "ff_edge_group_policy_total",
    "Joins that were given a policy: all_of, any_of or quorum.",
    ("policy",),
)
SIBLING_CANCELS: Final = EventCount(
    "ff_sibling_cancel_dispatched_total",
    "Upstreams that were to be cancelled because no join needs them.",
    ("reason",),
)
SIBLING_DISPOSITIONS: Final = EventCount(
    "ff_sibling_cancel_disposition_total",
    "What became of them: cancelled, already_terminal or not_found.",
    ("disposition",),
)
SIBLING_RECONCILES: Final = EventCount(
    "ff_sibling_cancel_reconcile_total",
    "What the sweep did with listed joins: sremmed_stale, completed_drain or no_op.",
    ("action",),
)

# The database.

POOL_IN_USE: Final = Level("ff_db_pool_in_use", "Connections of the pools that are in use.")
POOL_WAIT_SECONDS: Final = Distribution(
    "ff_db_pool_wait_seconds", "How long an operation waited for a connection.", _SECONDS
)
TRANSACTION_RETRIES: Final = EventCount(
    "ff_tx_retry_total", "Transactions that ran again after a conflict.", ("op",)
)
NOTIFY_LAG: Final = Level(
    "ff_notify_lag_seconds", "How long the last notification took to come back to its sender."
)

# Read from the database, by a process that is asked to.

EXECUTIONS: Final = Level("ff_executions", "Executions that have not ended.", ("lane", "state"))
QUEUE_AGE: Final = Level(
    "ff_queue_age_seconds", "How long the oldest claimable execution has waited.", ("lane",)
)
CANCEL_BACKLOG: Final = Level(
    "ff_cancel_backlog_depth", "Members of cancelled flows that are still to be ended."
)
SCHEDULES: Final = Level("ff_schedules", "Schedules, by their state.", ("state",))
OUTBOX_PENDING: Final = Level(
    "ff_outbox_pending", "Completions that are not dispatched to the joins that wait for them."
)

# Streams, schedules, processes.

STREAM_OPS: Final = Level("ff_stream_ops_in_flight", "Reads and tails of streams that run.")
SHUTDOWN_TIMEOUTS: Final = EventCount(
    "ff_shutdown_timeout_total", "Shutdowns in which work did not end in time."
)
BUILD_INFO: Final = Level("ff_build_info", "1, with the versions.", ("version", "python"))

# Journals.

JOURNAL_ENTRIES: Final = EventCount(
    "ff_journal_entries_total", "Entries that were recorded in journals.", ("kind", "state")
)
JOURNAL_FLUSH_SECONDS: Final = Distribution(
    "ff_journal_flush_seconds", "How long it took to record entries, many together.", _SECONDS
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
UNVISITED_ENTRIES: Final = EventCount(
    "ff_unvisited_entries_total",
    "Recorded entries that a handler had not asked for when it returned.",
    ("kind",),
)
SCHEDULE_FIRES: Final = EventCount(
    "ff_schedule_fires_total", "Instants of schedules, by what became of them.", ("outcome",)
)
SCHEDULE_LATENESS: Final = Distribution(
    "ff_schedule_lateness_seconds",
    "How long after their instants schedules were fired.",
    (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)

READ_FROM_DATABASE: Final = (
    EXECUTIONS,
    QUEUE_AGE,
    CANCEL_BACKLOG,
    OUTBOX_PENDING,
    SCHEDULES,
    NOTIFY_LAG,
)
"""Levels that are the same in every process: one of them is exported, not their sum."""

COUNTERS: Final = (
    HTTP_REQUESTS,
    HTTP_REQUEST_SECONDS,
    SCANNER_CYCLES,
    SCANNER_CYCLE_SECONDS,
    CLAIM_BATCH_SIZE,
    CLAIM_FROM_GRANT_SECONDS,
    LEASE_RENEWALS,
    ATTEMPT_OUTCOMES,
    WORKER_AT_CAPACITY,
    BUDGET_HITS,
    BUDGET_BREACHES,
    QUOTA_HITS,
    EDGE_GROUP_POLICIES,
    SIBLING_CANCELS,
    SIBLING_DISPOSITIONS,
    SIBLING_RECONCILES,
    POOL_IN_USE,
    POOL_WAIT_SECONDS,
    TRANSACTION_RETRIES,
    STREAM_OPS,
    SHUTDOWN_TIMEOUTS,
    BUILD_INFO,
    JOURNAL_ENTRIES,
    JOURNAL_FLUSH_SECONDS,
    JOURNAL_FLUSH_SIZE,
    REPLAYED_ENTRIES,
    DIVERGENCES,
    UNVISITED_ENTRIES,
    SCHEDULE_FIRES,
    SCHEDULE_LATENESS,
    *READ_FROM_DATABASE,
)
"""All counters of a process."""
