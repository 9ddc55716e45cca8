"""The table of scenarios; each one calls a `run_…` method of the adapters."""

from typing import Final

import msgspec

from bench.systems import FLOOR, OURS, PEERS, System


class Size(msgspec.Struct, frozen=True):
    """How many executions or flows are run: for FlowFabric, for fast and for slow systems.

    Rates are compared, not times, so a slow system may run fewer.
    """

    ours: int
    fast: int
    slow: int

    def of(self, system: System) -> int:
        """The number for one system."""
        if system.name == OURS:
            return self.ours
        return self.slow if system.slow else self.fast


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: the command for the adapter, and the figure to compare."""

    key: str
    title: str
    command: str
    figure: str = "rate"
    unit: str = "/s"
    full: Size
    quick: Size
    behind: Size = Size(0, 0, 0)
    queued: bool = False
    options: tuple[str, ...] = ()
    quick_options: tuple[str, ...] = ()
    systems: tuple[str, ...] = (OURS, *PEERS)
    quick_systems: tuple[str, ...] = ()
    every_round: bool = True
    footprint: bool = False

    @property
    def group(self) -> str:
        """The name of the scenario in performance.md: `S2` of `S2 one`."""
        return self.key.split()[0]

    def includes(self, name: str, *, quick: bool) -> bool:
        """Whether the system called `name` is measured."""
        return name in (self.quick_systems if quick and self.quick_systems else self.systems)

    def size(self, system: System, *, quick: bool) -> int:
        """How many executions `system` runs."""
        return (self.quick if quick else self.full).of(system)

    def backlog(self, system: System, *, quick: bool) -> int:
        """How many executions are queued before the measurement begins."""
        if not self.queued:
            return 0
        behind = self.behind.of(system)
        return self.size(system, quick=quick) + (behind // 4 if quick else behind)


OURS_ALONE: Final = (OURS,)
WITH_BULK: Final = (OURS, "pgqueuer", "procrastinate")
WITH_FLOWS: Final = (OURS, "dbos")
BESIDE_PGQUEUER: Final = (OURS, "pgqueuer")

SCENARIOS: Final = (
    Scenario(
        key="S1 single",
        title="submit, one call each, 32 in flight",
        command="submit",
        full=Size(10_000, 4_000, 1_000),
        quick=Size(5_000, 2_000, 500),
        systems=(OURS, *PEERS, FLOOR),
        quick_systems=(*BESIDE_PGQUEUER, FLOOR),
    ),
    Scenario(
        key="S1 bulk",
        title="submit, bulk call",
        command="bulk",
        full=Size(20_000, 20_000, 10_000),
        quick=Size(10_000, 10_000, 5_000),
        systems=(*WITH_BULK, FLOOR),
        quick_systems=(*BESIDE_PGQUEUER, FLOOR),
    ),
    Scenario(
        key="S2 one",
        title="drain, one worker process",
        command="drain",
        full=Size(20_000, 20_000, 1_500),
        quick=Size(10_000, 10_000, 500),
        queued=True,
        systems=(OURS, *PEERS, FLOOR),
    ),
    Scenario(
        key="S2 one, batches of 100",
        title="drain, one connection, batches of 100",
        command="drain",
        full=Size(20_000, 20_000, 0),
        quick=Size(10_000, 10_000, 0),
        queued=True,
        options=("--batch", "100"),
        systems=(FLOOR,),
    ),
    Scenario(
        key="S2 two",
        title="drain, two worker processes",
        command="drain",
        full=Size(20_000, 20_000, 1_500),
        quick=Size(10_000, 10_000, 500),
        queued=True,
        options=("--workers", "2"),
        systems=(OURS, *PEERS, FLOOR),
        quick_systems=BESIDE_PGQUEUER,
    ),
    Scenario(
        key="S3",
        title="end to end, 32 in flight, one worker",
        command="end-to-end",
        full=Size(10_000, 3_000, 800),
        quick=Size(5_000, 1_500, 400),
        quick_systems=BESIDE_PGQUEUER,
    ),
    Scenario(
        key="S4",
        title="latency, submit call to handler start",
        command="latency",
        figure="p50",
        unit="p50 ms",
        full=Size(0, 0, 0),
        quick=Size(0, 0, 0),
        options=("--seconds", "5"),
        quick_options=("--seconds", "2"),
        quick_systems=BESIDE_PGQUEUER,
    ),
    Scenario(
        key="S5 fan",
        title="flows of 1 → 10 → 1, 32 starts in flight, one worker",
        command="flows",
        unit="flows/s",
        full=Size(200, 0, 60),
        quick=Size(100, 0, 10),
        options=("--shape", "fan", "--alone", "10"),
        quick_options=("--alone", "5"),
        systems=WITH_FLOWS,
    ),
    Scenario(
        key="S5 chain",
        title="flows that are a chain of 10, 32 starts in flight, one worker",
        command="flows",
        unit="flows/s",
        full=Size(500, 0, 80),
        quick=Size(200, 0, 15),
        options=("--shape", "chain", "--alone", "10"),
        quick_options=("--alone", "5"),
        systems=WITH_FLOWS,
    ),
    Scenario(
        key="S5 10,000 nodes",
        title="a flow of 10,000 members, started in one call",
        command="submit-flow",
        figure="seconds",
        unit="s",
        full=Size(10_000, 0, 0),
        quick=Size(10_000, 0, 0),
        systems=OURS_ALONE,
    ),
    Scenario(
        key="S6",
        title="crash, two workers, one killed half-way, lease TTL 5 s",
        command="crash",
        figure="beyond",
        unit="s beyond healthy",
        full=Size(1_000, 0, 0),
        quick=Size(400, 0, 0),
        options=("--timeout", "15"),
        systems=OURS_ALONE,
        every_round=False,
    ),
    Scenario(
        key="S7 depth",
        title="drain 2,000 of 202,000 queued, one worker process",
        command="depth",
        full=Size(2_000, 2_000, 1_000),
        quick=Size(2_000, 2_000, 500),
        behind=Size(200_000, 200_000, 200_000),
        queued=True,
        quick_systems=OURS_ALONE,
    ),
    Scenario(
        key="S7 size",
        title="what is left after 20,000 are done",
        command="drain",
        figure="kilobytes_each",
        unit="kB each",
        full=Size(20_000, 20_000, 0),
        quick=Size(10_000, 10_000, 0),
        queued=True,
        systems=BESIDE_PGQUEUER,
        every_round=False,
        footprint=True,
    ),
    Scenario(
        key="S8 n=100",
        title="cancel of a flow of 100 pending members",
        command="cancel",
        figure="p50",
        unit="p50 ms",
        full=Size(100, 0, 0),
        quick=Size(100, 0, 0),
        options=("--cancels", "20"),
        systems=OURS_ALONE,
    ),
    Scenario(
        key="S8 n=1,000",
        title="cancel of a flow of 1,000 pending members",
        command="cancel",
        figure="p50",
        unit="p50 ms",
        full=Size(1_000, 0, 0),
        quick=Size(1_000, 0, 0),
        options=("--cancels", "20"),
        quick_options=("--cancels", "10"),
        systems=OURS_ALONE,
    ),
    Scenario(
        key="S9",
        title="idle, one worker, all sweeps",
        command="idle",
        figure="statements",
        unit="statements/s",
        full=Size(0, 0, 0),
        quick=Size(0, 0, 0),
        options=("--seconds", "30"),
        quick_options=("--seconds", "5"),
        systems=OURS_ALONE,
        every_round=False,
    ),
    Scenario(
        key="S10",
        title="fleet, 100 worker connections",
        command="fleet",
        full=Size(10_000, 0, 0),
        quick=Size(10_000, 0, 0),
        queued=True,
        options=("--connections", "100"),
        systems=OURS_ALONE,
    ),
)

GROUPS: Final = tuple(dict.fromkeys(scenario.group for scenario in SCENARIOS))
