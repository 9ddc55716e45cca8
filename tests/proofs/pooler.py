"""G16: everything works behind a pooler in transaction mode: the suite, through PgBouncer."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flowfabric import App, Client, Ctx
from flowfabric.errors import FlowFabricError
from tests import pgbouncer
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof

TREE: Final = Path(__file__).parents[2]
THROUGH: Final = ("--through-pgbouncer", "--ignore", "tests/proofs")
"""The proofs start servers of their own: they would run past PgBouncer."""
STEPS: Final = (("-n", "2", "--dist", "worksteal", "-m", "not timing"), ("-m", "timing"))
_COUNTED: Final = re.compile(r"(\d+) (passed|failed|skipped|error)")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_DESELECTED: Final = re.compile(r"\((\d+) deselected\)")

app = App()


@app.task("double")
async def double(ctx: Ctx, number: int) -> int:
    return 2 * number


@app.task("sum_up")
async def sum_up(ctx: Ctx, number: int) -> int:
    return sum(await ctx.gather([double.call(number), double.call(number)]))


def quick(arena: Arena) -> Sequence[Figure]:
    if pgbouncer.installed() is None:
        return [_missing("handlers with children, behind PgBouncer")]
    with arena.database() as dsn:
        bouncer = pgbouncer.PgBouncer.start(dsn)
        try:
            return [asyncio.run(_story(bouncer.through(dsn), calls=20))]
        finally:
            bouncer.stop()


def full(arena: Arena) -> Sequence[Figure]:
    if pgbouncer.installed() is None:
        return [_missing("the suite through PgBouncer in transaction mode")]
    return [*quick(arena), _suite()]


def _missing(what: str) -> Figure:
    return Figure(
        promise="G16",
        what=what,
        reached="not run: no pgbouncer on this machine (Debian: apt-get install pgbouncer)",
        target="all green",
        held=True,
        skipped=True,
    )


async def _story(dsn: str, *, calls: int) -> Figure:
    trouble, right = "", 0
    try:
        async with (
            await Client.connect(dsn, pooler=True) as client,
            app.worker(dsn=dsn, pooler=True),
        ):
            handles = [await client.submit(sum_up.call(number)) for number in range(calls)]
            for number, handle in enumerate(handles):
                right += await handle.result(timeout=60) == 4 * number
    except FlowFabricError as error:
        trouble = f"; {error!r}"[:200]
    return Figure(
        promise="G16",
        what="handlers with children, behind PgBouncer in transaction mode",
        reached=f"{right} of {calls}{trouble}",
        target="all",
        held=right == calls,
    )


def _suite() -> Figure:
    """In two steps, as in `make test`: those that bound a time are run one after the other."""
    collected = _pytest("--collect-only", *THROUGH)
    found = _DESELECTED.search(collected.stdout)
    runs = [_pytest(*step, *THROUGH) for step in STEPS]
    counts = Counter[str]()
    for run in runs:
        for number, what in _COUNTED.findall(run.stdout.rstrip().rpartition("\n")[2]):
            counts[what] += int(number)
    failed = [name for run in runs for name in _FAILED.findall(run.stdout)]
    return Figure(
        promise="G16",
        what="the suite (but tests/proofs) through PgBouncer in transaction mode",
        reached=", ".join(
            [
                f"{counts['passed']} passed",
                f"{len(failed)} failed",
                f"{counts['skipped']} skipped",
                f"{found[1] if found else 0} deselected because they need a session",
                *failed[:5],
            ]
        ),
        target="all green",
        held=all(run.returncode == 0 for run in runs) and counts["passed"] > 0,
    )


def _pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--tb=line",
            "-rfE",
            "-p",
            "no:cacheprovider",
            *arguments,
        ],
        cwd=TREE,
        capture_output=True,
        text=True,
        check=False,
    )


POOLER: Final = Proof("pooler", quick=quick, full=full, claims=("G16",))
