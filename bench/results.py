"""The figures of a run by scenario, system and round, with median and spread."""

from statistics import median

import msgspec

from bench.systems import OURS

Figures = dict[str, float]


class Spread(msgspec.Struct, frozen=True):
    """The median of several rounds between their extremes."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread | None":
        """The spread of `values`, or None when there are none."""
        return cls(median(values), min(values), max(values)) if values else None


class Results:
    """Figures as they come in, one entry per round that succeeded."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], dict[int, Figures]] = {}
        self.failures: list[str] = []
        self.not_on_base: dict[str, str] = {}
        """Scenarios that the base commit cannot run, and why."""

    def add(self, scenario: str, system: str, number: int, figures: Figures) -> None:
        """Record the figures of `system` in round `number`."""
        self._figures.setdefault((scenario, system), {})[number] = figures

    def rounds(self, scenario: str, system: str) -> dict[int, Figures]:
        """The figures of every round, by its number."""
        return self._figures.get((scenario, system), {})

    def spread(self, scenario: str, system: str, figure: str) -> Spread | None:
        """Median and extremes of one figure."""
        rounds = self.rounds(scenario, system).values()
        return Spread.of([figures[figure] for figures in rounds if figure in figures])

    def ratio(
        self, scenario: str, figure: str, *, against: str, system: str = OURS
    ) -> Spread | None:
        """Our figure in `scenario` divided by that of `system` in `against`, round by round.

        Rounds that only one of them has are left out; without a common round the medians are
        divided.
        """
        ours, theirs = self.rounds(scenario, OURS), self.rounds(against, system)
        ratios = [
            ours[number][figure] / theirs[number][figure]
            for number in ours.keys() & theirs.keys()
            if theirs[number].get(figure) and figure in ours[number]
        ]
        if ratios:
            return Spread.of(ratios)
        above, below = self.spread(scenario, OURS, figure), self.spread(against, system, figure)
        if above is None or below is None or not below.median:
            return None
        return Spread.of([above.median / below.median])

    def as_json(self) -> dict[str, dict[str, list[Figures]]]:
        """Every figure of every round, by scenario and system."""
        out: dict[str, dict[str, list[Figures]]] = {}
        for (scenario, system), rounds in self._figures.items():
            out.setdefault(scenario, {})[system] = [rounds[number] for number in sorted(rounds)]
        return out
