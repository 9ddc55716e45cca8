"""The ratios to reach, as performance.md states them."""

from typing import Final, Literal

import msgspec

from bench.results import Results, Spread
from bench.systems import OURS

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
        return f"{'≤' if self.lower else '≥'} {value:g}"


TARGETS: Final = (
    Target(scenario="S1 single", system="pgqueuer", first=5, goal=8),
    Target(scenario="S1 bulk", system="pgqueuer", first=1.2, goal=2),
    Target(scenario="S2 one", system="pgqueuer", first=1, goal=1.4),
    Target(scenario="S2 one", system="procrastinate", first=10, goal=15),
    Target(scenario="S2 one", system="dbos", first=10, goal=15),
    Target(scenario="S2 two", system="pgqueuer", first=0.7, goal=1),
    Target(scenario="S3", system="pgqueuer", first=3, goal=5),
    Target(
        scenario="S4", figure="p50", label="p50", system="pgqueuer", first=1, goal=0.6, lower=True
    ),
    Target(scenario="S5 fan", system="dbos", first=20, goal=40),
    Target(scenario="S5 chain", system="dbos", first=20, goal=40),
    Target(scenario="S6", figure="lost", label="lost", first=0, goal=0, lower=True),
    Target(
        scenario="S6", figure="completed_twice", label="twice done", first=0, goal=0, lower=True
    ),
    Target(scenario="S6", figure="beyond", label="s beyond healthy", first=8, goal=7, lower=True),
    Target(scenario="S7 depth", system=OURS, against="S2 one", first=0.8, goal=0.95),
    Target(
        scenario="S7 size",
        figure="kilobytes_each",
        label="kB each",
        system="pgqueuer",
        first=1,
        goal=1,
        lower=True,
    ),
    Target(
        scenario="S7 size",
        figure="dead_rows_each",
        label="dead rows each",
        system="pgqueuer",
        first=1,
        goal=1,
        lower=True,
    ),
    Target(scenario="S8 n=100", figure="p99", label="p99 ms", first=64, goal=None, lower=True),
    Target(scenario="S8 n=1,000", figure="p99", label="p99 ms", first=None, goal=64, lower=True),
    Target(scenario="S9", figure="statements", label="statements/s", first=10, goal=3, lower=True),
    Target(scenario="S10", system=OURS, against="S2 two", first=0.7, goal=0.9),
    Target(scenario="S10", figure="errors", label="errors", first=0, goal=0, lower=True),
)
