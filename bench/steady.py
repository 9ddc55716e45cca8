"""The steady load: do tables, indexes and delays stay level while executions come and go?"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.adapter import AdapterError, call
from bench.postgres import Cluster
from bench.systems import OURS, SYSTEMS

RATE: Final = 2_000.0
RATE_KEPT: Final = 0.98
SIZE_GROWTH: Final = 1.10
P50_GROWTH: Final = 1.25
P99_GROWTH: Final = 1.50
UNNOTICED_MS: Final = 2.0
"""A delay that grew by less is level, whatever the ratio."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """How long the load lasts, and for how long ended executions are kept."""

    seconds: float
    window: float
    retention: float

    @property
    def levels_off(self) -> bool:
        """Whether it is long enough for sizes to level: retention is swept once a minute."""
        return self.seconds >= 2 * (self.retention + 60)


FULL: Final = Course(seconds=300, window=30, retention=60)
QUICK: Final = Course(seconds=30, window=5, retention=5)


class Percentiles(msgspec.Struct, frozen=True):
    """Delays in milliseconds."""

    p50: float
    p99: float


class Sizes(msgspec.Struct, frozen=True):
    """Megabytes of all tables and of all indexes, and the executions stored."""

    tables: float
    indexes: float
    executions: float


class Window(msgspec.Struct, frozen=True):
    """What was submitted within some seconds; sizes at the end of them."""

    second: float
    rate: float
    submit: Percentiles
    start: Percentiles
    sizes: Sizes


class Check(msgspec.Struct, frozen=True):
    """One part of the verdict."""

    what: str
    value: float
    bound: str
    held: bool


async def steady(cluster: Cluster, console: Console, *, quick: bool, out: Path | None) -> int:
    """Run the load, print a line per window and the verdict; 1 unless everything stayed level."""
    course = QUICK if quick else FULL
    console.print(
        f"steady load: {RATE:,.0f}/s for {course.seconds:.0f} s, ended executions are kept for"
        f" {course.retention:.0f} s",
        highlight=False,
    )
    try:
        windows = await _run(cluster, course)
    except AdapterError as error:
        console.print(f"[red]failed[/red] {escape(str(error))}", highlight=False)
        return 1
    checks = verdict(windows, course)
    console.print(table(windows))
    for check in checks:
        word = "[green]held[/green]" if check.held else "[red]not held[/red]"
        text = f"{word}  {check.what}: {check.value:.2f} ({check.bound})"
        console.print(text, highlight=False)
    level = all(check.held for check in checks)
    console.print(f"verdict: {'[green]level[/green]' if level else '[red]not level[/red]'}")
    if not course.levels_off:
        console.print("sizes are not judged: the load ends before retention has deleted twice")
    if out:
        _write(out, {"course": course, "windows": windows, "checks": checks})
    return 0 if level else 1


def _write(path: Path, document: object) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def verdict(windows: Sequence[Window], course: Course) -> list[Check]:
    """The rate was kept, delays did not grow, and sizes levelled off."""
    rate = median(window.rate for window in windows) / RATE
    checks = [Check("rate kept", rate, f"≥ {RATE_KEPT} of {RATE:,.0f}/s", rate >= RATE_KEPT)]
    delays: dict[str, Callable[[Window], Percentiles]] = {
        "submit": lambda window: window.submit,
        "start": lambda window: window.start,
    }
    for name, of in delays.items():
        checks += [
            _delay(f"{name} p50", [of(window).p50 for window in windows], P50_GROWTH),
            _delay(f"{name} p99", [of(window).p99 for window in windows], P99_GROWTH),
        ]
    if course.levels_off:
        checks += [
            _size("tables", [window.sizes.tables for window in windows]),
            _size("indexes", [window.sizes.indexes for window in windows]),
        ]
    return checks


def _delay(name: str, values: Sequence[float], bound: float) -> Check:
    """The last third of the windows against the first; the very first one warms up."""
    third = max(1, len(values) // 3)
    before, after = median(values[1 : 1 + third]), median(values[-third:])
    growth = after / before
    held = growth <= bound or after - before <= UNNOTICED_MS
    return Check(f"{name}, last third to first", growth, f"≤ {bound} or {UNNOTICED_MS:g} ms", held)


def _size(name: str, values: Sequence[float]) -> Check:
    """The end against the state after three fifths of the time."""
    growth = values[-1] / values[len(values) * 3 // 5 - 1]
    held = growth <= SIZE_GROWTH
    return Check(f"{name}, the end to three fifths", growth, f"≤ {SIZE_GROWTH}", held)


def table(windows: Sequence[Window]) -> Table:
    """One line per window."""
    out = Table(title="Steady load: delays in ms, sizes in MB, stored executions", box=SIMPLE_HEAD)
    out.title_justify = "left"
    delays = ("submit p50", "submit p99", "start p50", "start p99")
    for column in ("to s", "submits/s", *delays, "tables", "indexes", "stored"):
        out.add_column(column, justify="right")
    for window in windows:
        out.add_row(
            f"{window.second:.0f}",
            f"{window.rate:,.0f}",
            f"{window.submit.p50:.1f}",
            f"{window.submit.p99:.1f}",
            f"{window.start.p50:.1f}",
            f"{window.start.p99:.1f}",
            f"{window.sizes.tables:.1f}",
            f"{window.sizes.indexes:.1f}",
            f"{window.sizes.executions:,.0f}",
        )
    return out


async def _run(cluster: Cluster, course: Course) -> list[Window]:
    dsn = await cluster.create("steady")
    ours = SYSTEMS[OURS]
    await call(ours, "setup", "--dsn", dsn, timeout=course.seconds)
    lines = await call(
        ours,
        *("steady", "--dsn", dsn, "--rate", f"{RATE:g}", "--seconds", f"{course.seconds:g}"),
        *("--window", f"{course.window:g}", "--retention", f"{course.retention:g}"),
        timeout=course.seconds,
    )
    if "stalled" in json.loads(lines[-1]):
        raise AdapterError("the worker did not finish what was submitted")
    return [msgspec.json.decode(line, type=Window) for line in lines[:-1]]
