"""The ratios to reach, as performance.md states them."""

from typing import Final, Literal

import msgspec

from bench.results import Results, Spread
from bench.systems import BASE, OURS

COMPLETES: Final = 1_158
"""Single completes/s by 16 writers that performance.md measured before its goals were set."""

Verdict = Literal["goal", "first bar", "below"]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One target: a ratio to a peer, a ratio to another scenario of ours, or a plain bound.

    The figure is divided by that of `system` in the scenario `against` (the same one by default);
    without a `system` the figure itself is compared. `first` (the first bar) and `goal` are the
    thresholds; None means that there is none.
    """

    scenario: str
    figure: str = "rate"
    label: str = ""
    system: str | None = None
    against: str | None = None
    first: float | None
    goal: float | None
    lower: bool = False

    def measured(self, results: Results) -> Spread | None:
        """The ratio or the figure, with its spread; None when it was not measured."""
        if self.system is None:
            return results.spread(self.scenario, OURS, self.figure)
        against = self.against or self.scenario
        return results.ratio(self.scenario, self.figure, against=against, system=self.system)

    def verdict(self, value: float) -> Verdict:
        """Which threshold `value` reaches, at the precision that the table shows."""
        value = round(value, 2)
        if self._reaches(value, self.goal):
            return "goal"
        return "first bar" if self._reaches(value, self.first) else "below"

    def _reaches(self, value: float, threshold: float | None) -> bool:
        if threshold is None:
            return False
        return value <= threshold if self.lower else value >= threshold

    def threshold(self, value: float | None) -> str:
        """A threshold as the table shows it."""
        if value is None:
            return "-"
        return f"{'≤' if self.lower else '≥'} {value:,.4g}"


def lower(
    scenario: str, figure: str, label: str, *, first: float, goal: float, system: str | None = None
) -> Target:
    """A target whose figure or ratio must be at most the thresholds."""
    return Target(
        scenario=scenario,
        figure=figure,
        label=label,
        system=system,
        first=first,
        goal=goal,
        lower=True,
    )


TARGETS: Final = (
    Target(scenario="S1 single", system="pgqueuer", first=6, goal=8),
    Target(scenario="S1 bulk", system="pgqueuer", first=1.2, goal=1.5),
    Target(scenario="S2 one", system="pgqueuer", first=1.5, goal=1.8),
    Target(scenario="S2 one", system="procrastinate", first=30, goal=45),
    Target(scenario="S2 one", system="dbos", first=30, goal=45),
    Target(scenario="S2 two", system="pgqueuer", first=1.1, goal=1.3),
    Target(scenario="S3", system="pgqueuer", first=5, goal=6),
    lower("S4", "p50", "p50", system="pgqueuer", first=0.85, goal=0.65),
    lower("S4", "p99", "p99", system="pgqueuer", first=0.85, goal=0.65),
    Target(scenario="S5 fan", system="dbos", first=45, goal=60),
    Target(scenario="S5 chain", system="dbos", first=20, goal=30),
    lower("S6 TTL 5", "lost", "lost", first=0, goal=0),
    lower("S6 TTL 5", "completed_twice", "twice done", first=0, goal=0),
    lower("S6 TTL 5", "beyond", "s beyond healthy", first=7, goal=3),
    lower("S6 TTL 30", "lost", "lost", first=0, goal=0),
    lower("S6 TTL 30", "completed_twice", "twice done", first=0, goal=0),
    lower("S6 TTL 30", "beyond", "s beyond healthy", first=32, goal=3),
    Target(scenario="S7 depth", system=OURS, against="S7 alone", first=0.9, goal=0.95),
    lower("S7 size", "kilobytes_each", "kB each", system="pgqueuer", first=1.5, goal=1.2),
    lower("S7 size", "dead_rows_each", "dead rows each", system="pgqueuer", first=1, goal=1),
    lower("S8 n=1,000", "p99", "p99 ms", first=64, goal=30),
    lower("S9 one", "statements", "statements/s", first=3, goal=2),
    lower("S9 sixteen", "statements", "statements/s", first=30, goal=20),
    Target(scenario="S10 n=20,000", system=OURS, against="S2 two", first=0.7, goal=0.75),
    Target(scenario="S10 n=100,000", system=OURS, against="S2 two", first=0.8, goal=0.9),
    lower("S10 n=20,000", "errors", "errors", first=0, goal=0),
    lower("S10 n=100,000", "errors", "errors", first=0, goal=0),
    Target(scenario="S11", system="pgqueuer", first=1.9, goal=2.2),
    lower("S12", "p50", "p50", system="pgqueuer", first=1.2, goal=1.0),
    Target(scenario="D1", system="dbos", first=30, goal=45),
    Target(scenario="D2", system="dbos", first=60, goal=100),
    lower("D3", "step", "ms per step", first=2.5, goal=1.5),
    lower("D3", "statements", "statements per step", first=1.05, goal=1.0),
    Target(scenario="S2 one", label="D4", system=BASE, first=0.97, goal=1.0),
    Target(scenario="D5", label="parks/s", first=2_000, goal=4_000),
    lower("D5", "p50", "p50 ms late", first=100, goal=50),
    lower("D5", "p99", "p99 ms late", first=1_000, goal=500),
    lower("D6 alone", "p50", "p50 ms", first=25, goal=10),
    Target(scenario="D6", system="dbos", first=10, goal=20),
    lower("D7", "p50", "p50 ms", first=80, goal=30),
    lower("D7", "reads", "reads", first=2, goal=2),
    Target(scenario="D8 keys", system=OURS, against="S2 one", first=0.4, goal=0.6),
    Target(scenario="D8 others", system=OURS, against="S2 one", first=0.8, goal=0.95),
    lower("D9", "seconds", "s until all are fired", first=10, goal=4),
    lower("D9", "statements", "statements/s more", first=0.3, goal=0.2),
    Target(scenario="D10", label="frames/s", first=20_000, goal=30_000),
    lower("D11", "p50", "p50 ms", first=25, goal=10),
    Target(scenario="completes", label="/s", first=2 * COMPLETES, goal=2.6 * COMPLETES),
    Target(scenario="completes", system=BASE, first=2, goal=2.6),
    Target(
        scenario="completes", figure="waited", label="while a client waits", first=0.9, goal=0.98
    ),
    lower("cost", "cpu", "server CPU, µs", first=65, goal=50),
    lower("cost", "cpu", "server CPU", first=0.78, goal=0.60, system=BASE),
    lower("cost", "wal", "WAL, kB", first=3, goal=2.4),
    lower("cost", "wal", "WAL", first=0.84, goal=0.67, system=BASE),
    lower("routes", "ratio", "200 to one", first=1.6, goal=1.25),
    lower("reads 100,000", "p95", "p95 ms", first=50, goal=50),
    lower("reads 100,000", "buffers", "buffers", first=2_000, goal=2_000),
    lower("reads 1,000,000", "p95", "p95 ms", first=100, goal=100),
    lower("reads 1,000,000", "buffers", "buffers", first=2_000, goal=2_000),
)
