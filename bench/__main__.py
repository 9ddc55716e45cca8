"""`python -m bench`: measure FlowFabric beside its peers and print figures and ratios."""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from rich.console import Console

from bench.base import head, prepare_base
from bench.dashboard import main as dashboard
from bench.environments import InstallationError, prepare
from bench.postgres import running_cluster
from bench.report import WIDTH, show, write_json
from bench.rest import rest
from bench.runner import Plan, Runner
from bench.scenarios import GROUPS, SCENARIOS
from bench.steady import steady
from bench.systems import FLOOR, OURS, PEERS, SYSTEMS, System

FULL_LIMIT: Final = 5_400.0
QUICK_LIMIT: Final = 480.0

EPILOG: Final = """
Every scenario runs for every system in turn, round after round, on one Postgres: a temporary
one, or the server that FF_DATABASE_URL names. Only ratios of one run mean anything; see
bench/README.md. The first run installs the peers into .bench/. `python -m bench dashboard`
measures the dashboard.
"""


def main() -> int:
    """Parse the command line, measure, print; 1 when a measurement failed."""
    signal.signal(signal.SIGTERM, terminate)
    if sys.argv[1:2] == ["dashboard"]:
        return dashboard(sys.argv[2:])
    arguments = parser().parse_args()
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    try:
        return asyncio.run(bench(arguments, console))
    except KeyboardInterrupt:
        return 130


def terminate(number: int, _frame: FrameType | None) -> NoReturn:
    """Raise `SystemExit`, so that the temporary Postgres is stopped."""
    sys.exit(128 + number)


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m bench`."""
    parse = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure FlowFabric beside its peers and print figures and ratios.",
        epilog=EPILOG,
    )
    parse.add_argument(
        "what",
        nargs="?",
        choices=["rest"],
        help="rest: what HTTP costs, instead of the scenarios",
    )
    parse.add_argument(
        "--quick", action="store_true", help="one round of smaller sizes, a few minutes"
    )
    parse.add_argument(
        "--only",
        type=some_of(GROUPS),
        default=GROUPS,
        metavar="S1,S2",
        help=f"scenarios to run, of {', '.join(GROUPS)} (default: all)",
    )
    parse.add_argument(
        "--peers",
        type=some_of(PEERS),
        default=PEERS,
        metavar="NAME,…",
        help=f"peers to measure, of {', '.join(PEERS)} (default: all; empty: none)",
    )
    parse.add_argument(
        "--base",
        metavar="REVISION",
        help="compare this tree with another commit of it, round by round; without peers",
    )
    parse.add_argument(
        "--steady",
        action="store_true",
        help="a steady load of 2,000/s for five minutes (quick: 30 s) instead of the scenarios",
    )
    parse.add_argument(
        "--rounds", type=int, metavar="N", help="rounds to take the median of (3; quick: 1)"
    )
    parse.add_argument(
        "--limit",
        type=float,
        metavar="SECONDS",
        help=f"begin no measurement after this long ({FULL_LIMIT:.0f}; quick: {QUICK_LIMIT:.0f})",
    )
    parse.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    return parse


def some_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """An argument type: names of `known`, separated by commas, in any case."""
    names = {name.lower(): name for name in known}

    def parse(text: str) -> tuple[str, ...]:
        words = [word.strip().lower() for word in text.split(",") if word.strip()]
        if unknown := [word for word in words if word not in names]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return tuple(names[word] for word in words)

    return parse


async def bench(arguments: argparse.Namespace, console: Console) -> int:
    """Prepare the environments, start Postgres, run the plan and report."""
    if arguments.what == "rest":
        async with running_cluster() as cluster:
            console.print(await cluster.describe(), highlight=False)
            warn_of_load(console)
            return await rest(cluster, console, quick=arguments.quick, out=arguments.json)
    try:
        systems = prepared(arguments, console)
    except InstallationError as error:
        console.print(f"[red]could not install[/red] {error}", highlight=False)
        return 2
    plan = Plan(
        scenarios=[
            scenario
            for scenario in SCENARIOS
            if scenario.group in arguments.only
            and any(scenario.includes(system, quick=arguments.quick) for system in systems)
        ],
        systems=systems,
        rounds=arguments.rounds or (1 if arguments.quick else 3),
        quick=arguments.quick,
        limit=arguments.limit or (QUICK_LIMIT if arguments.quick else FULL_LIMIT),
    )
    began = time.monotonic()
    async with running_cluster() as cluster:
        server = await cluster.describe()
        console.print(server, highlight=False)
        warn_of_load(console)
        if arguments.steady:
            return await steady(cluster, console, quick=arguments.quick, out=arguments.json)
        results = await Runner(cluster, plan, console).run()
    show(results, plan, console)
    console.print(f"rounds: {plan.rounds}, {time.monotonic() - began:.0f} s", highlight=False)
    if arguments.json:
        write_json(arguments.json, results, plan, server)
    return 1 if results.failures else 0


def prepared(arguments: argparse.Namespace, console: Console) -> list[System]:
    """The systems that the run measures, each installed. Raises `InstallationError`."""
    if arguments.steady:
        return [SYSTEMS[OURS]]
    if arguments.base:
        return [prepare_base(arguments.base, console), head()]
    for name in arguments.peers:
        prepare(SYSTEMS[name], console)
    return [SYSTEMS[name] for name in (OURS, *arguments.peers, FLOOR)]


def warn_of_load(console: Console) -> None:
    """Print a warning when the machine is busy before the run begins."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        console.print(
            f"[yellow]the machine is busy[/yellow] (load {load:.1f} on {cores} cores): expect a"
            " wide spread",
            highlight=False,
        )


if __name__ == "__main__":
    sys.exit(main())
