"""What a scenario is: the command for the adapters, its sizes, and the figures to compare."""

from typing import Final

import msgspec

from bench.systems import BASE, OURS, PEERS, System

OURS_ALONE: Final = (OURS,)
WITH_BULK: Final = (OURS, "pgqueuer", "procrastinate")
WITH_FLOWS: Final = (OURS, "dbos")
BESIDE_PGQUEUER: Final = (OURS, "pgqueuer")


class Size(msgspec.Struct, frozen=True):
    """How many executions or flows are run: for FlowFabric, for fast and for slow systems.

    Rates are compared, not times, so a slow system may run fewer.
    """

    ours: int
    fast: int = 0
    slow: int = 0

    def of(self, system: System) -> int:
        """The number for one system."""
        if system.name in (OURS, BASE):
            return self.ours
        return self.slow if system.slow else self.fast


class Figure(msgspec.Struct, frozen=True):
    """A number that an adapter measures: its name there, its unit, and which way is better."""

    name: str
    unit: str
    lower: bool = False
    """Whether less is better; counts and times are, rates are not."""


NOTHING: Final = Size(0)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: the command for the adapter, and the figures to compare.

    With `queued` the database holds the executions, and `behind` them the others, before the
    clock starts. `fill` is the adapter's command that fills the database instead.
    """

    key: str
    title: str
    command: str
    figure: Figure = Figure("rate", "/s")
    extra: tuple[Figure, ...] = ()
    full: Size = NOTHING
    quick: Size = NOTHING
    behind: Size = NOTHING
    quick_behind: Size = NOTHING
    queued: bool = False
    fill: str = "fill"
    fill_options: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    quick_options: tuple[str, ...] = ()
    systems: tuple[str, ...] = (OURS, *PEERS)
    quick_systems: tuple[str, ...] = ()
    every_round: bool = True
    without_autovacuum: bool = False
    footprint: bool = False
    timeout: float = 40.0
    """Seconds after which the system counts as stalled."""

    @property
    def group(self) -> str:
        """The name of the scenario in performance.md: `S2` of `S2 one`."""
        return self.key.split()[0]

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every figure that is shown, the main one first."""
        return (self.figure, *self.extra)

    def includes(self, system: System, *, quick: bool) -> bool:
        """Whether `system` is measured; the base wherever FlowFabric is."""
        name = OURS if system.name == BASE else system.name
        return name in (self.quick_systems if quick and self.quick_systems else self.systems)

    def size(self, system: System, *, quick: bool) -> int:
        """How many executions `system` runs."""
        return (self.quick if quick else self.full).of(system)

    def backlog(self, system: System, *, quick: bool) -> int:
        """How many executions are queued before the measurement begins."""
        if not self.queued:
            return 0
        behind = self.quick_behind if quick else self.behind
        return self.size(system, quick=quick) + behind.of(system)
