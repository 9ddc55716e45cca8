"""The run: seed, measure round by round, print one table."""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from bench.adapter import AdapterError, call
from bench.dashboard.browser import browser
from bench.dashboard.drain import drain
from bench.dashboard.graph import graph
from bench.dashboard.life import login, stop
from bench.dashboard.pages import pages, paths
from bench.dashboard.result import TIMES_NOISY, Line, medians, table
from bench.dashboard.served import served
from bench.dashboard.viewers import viewers
from bench.postgres import Cluster, running_cluster
from bench.systems import OURS, SYSTEMS
from flowfabric import Engine
from flowfabric.config import DatabaseConfig

ROWS: Final = 100_000
QUICK_ROWS: Final = 10_000
MILLION: Final = 1_000_000
FILL_TIMEOUT: Final = 1_800.0
READS: Final = ("search_waiting", "search_active", "search_completed", "search_lane", "search_deep")
PARTS: Final = ("pages", "search", "viewers", "graph", "drain", "browser", "stop", "login")
P95: Final = {ROWS: 50.0, MILLION: 100.0}
BUFFERS: Final = 2_000.0


def main(words: list[str]) -> int:
    """Parse the command line, measure, print; 1 when a bar is not held."""
    options = parser().parse_args(words)
    console = Console(width=None if sys.stdout.isatty() else 100)
    try:
        return asyncio.run(bench(options, console))
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m bench dashboard`."""
    parse = argparse.ArgumentParser(
        prog="python -m bench dashboard",
        description="Measure the dashboard against its bars.",
    )
    parse.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows, one round")
    parse.add_argument(
        "--million", action="store_true", help=f"also search among {MILLION:,} executions"
    )
    parse.add_argument(
        "--only",
        type=lambda text: tuple(word for word in text.split(",") if word in PARTS),
        default=PARTS,
        metavar="pages,graph",
        help=f"parts to measure, of {', '.join(PARTS)}",
    )
    parse.add_argument(
        "--open", type=float, default=60.0, metavar="S", help="seconds that a list is left open"
    )
    parse.add_argument("--rounds", type=int, metavar="N", help="rounds (3; quick: 1)")
    parse.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    return parse


async def bench(options: argparse.Namespace, console: Console) -> int:
    """Seed a database, measure, print the table."""
    rows = QUICK_ROWS if options.quick else ROWS
    rounds: list[list[Line]] = []
    async with running_cluster() as cluster:
        console.print(f"seeding {rows:,} executions", highlight=False)
        try:
            dsn = await _seeded(cluster, rows)
        except AdapterError as error:
            console.print(f"[red]could not seed[/red] {error}", highlight=False)
            return 2
        for number in range(options.rounds or (1 if options.quick else 3)):
            console.print(f"round {number + 1}", highlight=False)
            rounds.append(await _round(dsn, options, rows))
        if "drain" in options.only:
            console.print("drains in turns", highlight=False)
            queued, pairs = (5_000, 2) if options.quick else (20_000, 5)
            rounds.append(await drain(cluster, queued=queued, pairs=pairs))
        if options.million and "search" in options.only:
            console.print(f"seeding {MILLION:,} executions", highlight=False)
            rounds.append(await _searches(await _seeded(cluster, MILLION), MILLION))
    lines = medians(rounds)
    console.print(table(lines))
    console.print(TIMES_NOISY, highlight=False)
    if options.json:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(lines)) + b"\n")
    return 0 if all(line.held for line in lines) else 1


async def _round(dsn: str, options: argparse.Namespace, rows: int) -> list[Line]:
    lines: list[Line] = []
    engine = await Engine.connect(DatabaseConfig(dsn=dsn), role="bench")
    try:
        async with served(dsn) as server:
            if "pages" in options.only:
                requests = 40 if options.quick else 200
                lines += await pages(server, await paths(engine), requests=requests)
            if "viewers" in options.only:
                seconds = 4.0 if options.quick else 10.0
                lines += await viewers(server, engine, dsn, seconds=seconds)
            if "graph" in options.only:
                lines += await graph(server, engine)
            if "browser" in options.only:
                seconds, frames = (15.0, 10_000) if options.quick else (options.open, 50_000)
                lines += await browser(server, engine, seconds=seconds, frames=frames)
        if "stop" in options.only:
            lines += await stop(dsn)
        if "login" in options.only:
            lines += await login(dsn, engine, wrong=1_000 if options.quick else 10_000)
    finally:
        await engine.close()
    if "search" in options.only:
        lines += await _searches(dsn, rows)
    return lines


async def _seeded(cluster: Cluster, rows: int) -> str:
    """A database with so many executions in ten lanes, and flows of two."""
    name = f"dashboard_{rows}"
    dsn = await cluster.create(name)
    ours = SYSTEMS[OURS]
    await call(ours, "setup", "--dsn", dsn, timeout=60)
    await call(ours, "fill-reads", "--dsn", dsn, "--n", str(rows), timeout=FILL_TIMEOUT)
    await cluster.settle(name)
    return dsn


async def _searches(dsn: str, rows: int) -> list[Line]:
    """p95 and buffers of the searches of the list of executions."""
    words = ("reads", "--dsn", dsn, "--n", str(rows), "--repeats", "20")
    figures = json.loads((await call(SYSTEMS[OURS], *words, timeout=240))[-1])
    bar, group = P95.get(rows, P95[ROWS]), f"search of {rows:,}"
    return [
        *(
            Line(group=group, what=f"{name}, p95", value=figures[f"{name}_p95"], unit="ms", bar=bar)
            for name in READS
        ),
        *(
            Line(
                group=group,
                what=f"{name}, buffers",
                value=figures[f"{name}_buffers"],
                unit="",
                bar=BUFFERS,
            )
            for name in READS
        ),
    ]
