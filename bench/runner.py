"""Runs every scenario for every system, round after round, on one Postgres."""

import json
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from rich.console import Console
from rich.markup import escape

from bench.adapter import AdapterError, NotSupported, call
from bench.postgres import Cluster
from bench.results import Figures, Results
from bench.scenarios import Scenario
from bench.systems import BASE, System

FILL_TIMEOUT: Final = 900.0
INSTALL_TIMEOUT: Final = 40.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one invocation measures."""

    scenarios: Sequence[Scenario]
    systems: Sequence[System]
    rounds: int
    quick: bool
    limit: float

    @property
    def compares(self) -> bool:
        """Whether two commits are compared: then every scenario runs in every round."""
        return any(system.name == BASE for system in self.systems)

    def steps(self) -> Iterator[tuple[int, Scenario, System]]:
        """Every measurement in order: round by round, scenario by scenario, system by system.

        The order of the systems changes each round, so that none always follows the same one.
        """
        for number in range(self.rounds):
            for scenario in self.scenarios:
                if number and not (scenario.every_round or self.compares):
                    continue
                systems = [s for s in self.systems if scenario.includes(s, quick=self.quick)]
                first = number % len(systems) if systems else 0
                for system in systems[first:] + systems[:first]:
                    yield number, scenario, system


class Runner:
    """Prepares databases, calls the adapters and collects their figures."""

    def __init__(self, cluster: Cluster, plan: Plan, console: Console) -> None:
        self.cluster = cluster
        self.plan = plan
        self.console = console
        self.results = Results()
        self._templates: set[str] = set()
        self._broken: set[str] = set()

    async def run(self) -> Results:
        """Measure everything in the plan; after a failure the run continues."""
        steps = list(self.plan.steps())
        began = time.monotonic()
        for done, (number, scenario, system) in enumerate(steps, 1):
            if time.monotonic() - began > self.plan.limit:
                left = len(steps) - done + 1
                self.results.failures.append(f"out of time: {left} measurements left out")
                break
            text = await self._measured(number, scenario, system)
            elapsed = int(time.monotonic() - began)
            self.console.print(
                f"[dim]{done:3}/{len(steps)} {elapsed // 60}:{elapsed % 60:02}[/dim]"
                f"  round {number + 1}  {scenario.key:<23} {system.title:<21} {text}",
                highlight=False,
                soft_wrap=True,
            )
        return self.results

    async def _measured(self, number: int, scenario: Scenario, system: System) -> str:
        """Run one measurement and keep its figures, or why there are none; the result as text."""
        if scenario.key in self.results.not_on_base and system.name == BASE:
            return "[yellow]cannot run on the base[/yellow]"
        try:
            return await self._step(number, scenario, system)
        except NotSupported as error:
            if system.name == BASE:
                self.results.not_on_base[scenario.key] = str(error)
                return f"[yellow]cannot run on the base[/yellow]: {escape(str(error))}"
            failure: Exception = error
        except (AdapterError, OSError) as error:
            failure = error
        self.results.failures.append(f"{scenario.key} {system.name}: {failure}")
        return f"[red]failed[/red]: {escape(str(failure))}"

    async def _step(self, number: int, scenario: Scenario, system: System) -> str:
        """Run one measurement in a fresh database; the main figure as text."""
        if system.name in self._broken:
            return "skipped, its schema could not be installed"
        quick = self.plan.quick
        template = await self._template(system, scenario)
        database = f"{system.name}_run"
        dsn = await self.cluster.create(database, template=template)
        await self.cluster.checkpoint()
        options = scenario.options + (scenario.quick_options if quick else ())
        size = scenario.size(system, quick=quick)
        words = (scenario.command, "--dsn", dsn, "--n", str(size), *options)
        async with self._autovacuum(scenario):
            figures = await self._call(system, *words, timeout=scenario.timeout)
            if scenario.footprint:
                figures |= await self._footprint(system, database, size)
        await self.cluster.drop(database)
        if "stalled" in figures:
            raise AdapterError(f"stalled, not done after {figures['stalled']:.0f} s")
        self.results.add(scenario.key, system.name, number, figures)
        if scenario.figure.name not in figures:
            return ", ".join(f"{name} {value:,.0f}" for name, value in figures.items())
        return f"{figures[scenario.figure.name]:>10,.1f} {scenario.figure.unit}"

    @asynccontextmanager
    async def _autovacuum(self, scenario: Scenario) -> AsyncGenerator[None]:
        if not scenario.without_autovacuum:
            yield
            return
        async with self.cluster.without_autovacuum():
            yield

    async def _template(self, system: System, scenario: Scenario) -> str:
        """A database with the schema and the scenario's backlog, created once per run."""
        empty = f"{system.name}_0"
        if empty not in self._templates:
            await self._install(system, empty)
        backlog = scenario.backlog(system, quick=self.plan.quick)
        if not backlog:
            return empty
        parts = [system.name, scenario.fill, *scenario.fill_options, str(backlog)]
        name = "_".join(parts).replace("-", "_")
        if name not in self._templates:
            dsn = await self.cluster.create(name, template=empty)
            words = (scenario.fill, "--dsn", dsn, "--n", str(backlog), *scenario.fill_options)
            await self._call(system, *words, timeout=FILL_TIMEOUT)
            await self.cluster.settle(name)
            self._templates.add(name)
        return name

    async def _install(self, system: System, name: str) -> None:
        """A database with the schema of `system` and nothing else.

        It is not vacuumed, as the tables of a fresh deployment are not: Postgres would take them
        for empty until their first ANALYZE, and plan for that.
        """
        dsn = await self.cluster.create(name)
        try:
            await self._call(system, "setup", "--dsn", dsn, timeout=INSTALL_TIMEOUT)
        except AdapterError:
            self._broken.add(system.name)
            raise
        self._templates.add(name)

    async def _footprint(self, system: System, database: str, size: int) -> Figures:
        """Disk space and row versions per execution, beyond those of the empty schema."""
        empty = await self.cluster.footprint(f"{system.name}_0")
        left = await self.cluster.footprint(database, analyze=True)
        return {
            "megabytes": left.megabytes - empty.megabytes,
            "kilobytes_each": 1024 * (left.megabytes - empty.megabytes) / size,
            "dead_rows": float(left.dead_rows),
            "dead_rows_each": left.dead_rows / size,
            "versions_each": (left.rows_updated + left.rows_deleted) / size,
        }

    async def _call(self, system: System, *words: str, timeout: float) -> Figures:
        """The figures that an adapter prints. Raises `AdapterError`."""
        return json.loads((await call(system, *words, timeout=timeout))[-1])
