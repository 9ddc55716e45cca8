"""The counters as metric families of prometheus-client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from flowfabric.counters import COUNTERS, Distribution, EventCount, Level
from flowfabric.metrics.snapshot import Buckets, Count, Snapshot


class CountersCollector(Collector):
    """Exports what `read` answers, each time it is asked."""

    def __init__(self, read: Callable[[], Snapshot]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Every metric, also one that has no sample yet."""
        taken = self._read()
        numbers: defaultdict[str, list[Count]] = defaultdict(list)
        for count in (*taken.counts, *taken.levels):
            numbers[count.name].append(count)
        buckets: defaultdict[str, list[Buckets]] = defaultdict(list)
        for found in taken.buckets:
            buckets[found.name].append(found)
        return [
            _histogram(each, buckets[each.name])
            if isinstance(each, Distribution)
            else _numbers(each, numbers[each.name])
            for each in COUNTERS
        ]


def _numbers(of: EventCount | Level, found: Iterable[Count]) -> Metric:
    kind = CounterMetricFamily if isinstance(of, EventCount) else GaugeMetricFamily
    family = kind(of.name, of.meaning, labels=of.labels)
    for each in sorted(found, key=lambda count: count.labels):
        family.add_metric(each.labels, each.value)
    return family


def _histogram(of: Distribution, found: Iterable[Buckets]) -> Metric:
    family = HistogramMetricFamily(of.name, of.meaning, labels=of.labels)
    bounds = [*map(str, map(float, of.bounds)), "+Inf"]
    for each in sorted(found, key=lambda buckets: buckets.labels):
        totals = zip(bounds, accumulate(each.within), strict=True)
        family.add_metric(each.labels, buckets=list(totals), sum_value=each.sum)
    return family
