"""Runs every scenario for every system, round after round, on one Postgres."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Console

from bench.postgres import Cluster
from bench.results import Figures, Results
from bench.scenarios import Scenario
from bench.systems import ROOT, SYSTEMS, System


class AdapterError(Exception):
    """An adapter ended without figures; the message is the last line of its output."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one invocation measures."""

    scenarios: Sequence[Scenario]
    systems: Sequence[str]
    rounds: int
    quick: bool
    limit: float
    timeout: float = 90.0

    def steps(self) -> Iterator[tuple[int, Scenario, System]]:
        """Every measurement in order: round by round, scenario by scenario, system by system.

        The order of the systems changes each round, so that none always follows the same one.
        """
        for number in range(self.rounds):
            for scenario in self.scenarios:
                if number and not scenario.every_round:
                    continue
                names = [n for n in self.systems if scenario.includes(n, quick=self.quick)]
                first = number % len(names) if names else 0
                for name in names[first:] + names[:first]:
                    yield number, scenario, SYSTEMS[name]


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
            try:
                text = await self._step(number, scenario, system)
            except (AdapterError, OSError) as error:
                text = f"[red]failed[/red]: {error}"
                self.results.failures.append(f"{scenario.key} {system.name}: {error}")
            elapsed = int(time.monotonic() - began)
            self.console.print(
                f"[dim]{done:3}/{len(steps)} {elapsed // 60}:{elapsed % 60:02}[/dim]"
                f"  round {number + 1}  {scenario.key:<24}{system.title:<22}{text}",
                highlight=False,
                soft_wrap=True,
            )
        return self.results

    async def _step(self, number: int, scenario: Scenario, system: System) -> str:
        """Run one measurement in a fresh database; the main figure as text."""
        if system.name in self._broken:
            return "skipped, its schema could not be installed"
        backlog = scenario.backlog(system, quick=self.plan.quick)
        template = await self._template(system, backlog)
        database = f"{system.name}_run"
        dsn = await self.cluster.create(database, template=template)
        await self.cluster.checkpoint()
        options = ("--timeout", "20") if self.plan.quick else ("--timeout", "40")
        options += scenario.options + (scenario.quick_options if self.plan.quick else ())
        size = scenario.size(system, quick=self.plan.quick)
        call = (scenario.command, "--dsn", dsn, "--n", str(size), *options)
        if scenario.footprint:
            async with self.cluster.without_autovacuum():
                figures = await self._call(system, *call)
                figures |= await self._footprint(system, database, size)
        else:
            figures = await self._call(system, *call)
        await self.cluster.drop(database)
        if "stalled" in figures:
            raise AdapterError(f"stalled, not done after {figures['stalled']:.0f} s")
        self.results.add(scenario.key, system.name, number, figures)
        if scenario.figure not in figures:
            return ", ".join(f"{name} {value:,.0f}" for name, value in figures.items())
        return f"{figures[scenario.figure]:>10,.1f} {scenario.unit}"

    async def _template(self, system: System, backlog: int) -> str:
        """A database with the schema and `backlog` queued executions, created once per run."""
        name = f"{system.name}_{backlog}"
        if name in self._templates:
            return name
        if backlog:
            dsn = await self.cluster.create(name, template=await self._template(system, 0))
            await self._call(system, "fill", "--dsn", dsn, "--n", str(backlog))
        else:
            dsn = await self.cluster.create(name)
            try:
                await self._call(system, "setup", "--dsn", dsn)
            except AdapterError:
                self._broken.add(system.name)
                raise
        await self.cluster.settle(name)
        self._templates.add(name)
        return name

    async def _footprint(self, system: System, database: str, size: int) -> Figures:
        """Disk space and row versions per execution, beyond those of the empty schema."""
        empty = await self.cluster.footprint(f"{system.name}_0")
        left = await self.cluster.footprint(database)
        return {
            "megabytes": left.megabytes - empty.megabytes,
            "kilobytes_each": 1024 * (left.megabytes - empty.megabytes) / size,
            "dead_rows": float(left.dead_rows),
            "dead_rows_each": left.dead_rows / size,
            "versions_each": (left.rows_updated + left.rows_deleted) / size,
        }

    async def _call(self, system: System, scenario: str, *options: str) -> Figures:
        """Run one adapter and read its JSON output. Raises `AdapterError`."""
        process = await asyncio.create_subprocess_exec(
            *system.command(scenario, *options),
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), self.plan.timeout)
        except TimeoutError:
            raise AdapterError(f"no answer after {self.plan.timeout:.0f} s") from None
        finally:
            # The adapter leads a process group, so its worker processes end with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        lines = out.decode().strip().splitlines()
        if process.returncode or not lines:
            words = err.decode().strip().splitlines()
            raise AdapterError(words[-1] if words else f"exit status {process.returncode}")
        return json.loads(lines[-1])
