"""G16: NOTIFY is a hint. Without it everything happens, and where it is used it costs little."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from flowfabric import App, Client, Ctx
from flowfabric.config import DatabaseConfig
from flowfabric.db.embedded import EmbeddedPostgres
from flowfabric.db.listen import CHANNEL
from flowfabric.db.migrate import migrate
from flowfabric.db.notifier import PAUSE
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.db.waiter import deregister, register
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.lease import Lease
from tests import given
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof

TREE: Final = Path(__file__).parents[2]
DEAF: Final = Path(__file__).parent / "deaf"
STORIES: Final = ("tests/worker", "tests/client", "tests/stories")
ABOUT_NOTIFICATIONS: Final = (
    "tests/client/test_enqueue.py::test_a_commit_wakes_an_idle_worker",
    "tests/client/test_results.py::test_a_cancelled_one_tells_why_also_to_those_who_wait_already",
    "tests/client/test_results.py::test_a_client_that_is_gone_is_no_longer_listed_as_waiting",
    "tests/client/test_results.py::test_a_notified_waiter_hears_of_it_at_once",
    "tests/worker/test_database_trouble.py"
    "::test_a_worker_survives_the_loss_of_any_statement_it_can_be_in",
    "tests/worker/test_database_trouble.py"
    "::test_an_idle_worker_whose_connections_were_cut_still_finds_work",
    "tests/worker/test_wakeups.py"
    "::test_a_handler_learns_within_a_tenth_of_a_second_that_it_was_cancelled",
    "tests/worker/test_wakeups.py::test_a_notification_wakes_an_idle_worker_long_before_its_next_poll",
    "tests/worker/test_wakeups.py::test_a_single_outcome_does_not_wait_for_company",
    "tests/worker/test_wakeups.py::test_a_worker_that_is_busy_is_deregistered",
    "tests/worker/test_wakeups.py::test_many_cancellations_are_found_by_few_looks",
    "tests/worker/test_wakeups.py"
    "::test_whatever_another_process_decides_a_handler_learns_long_before_the_next_renewal",
    "tests/worker/test_wakeups.py::test_work_that_became_due_wakes_an_idle_worker",
)
"""They begin when somebody is listed to be notified; a deaf waiter never is."""

WRITERS: Final = 16
AT_LEAST: Final = 0.9
_FAILED: Final = re.compile(r"^FAILED (\S+)", re.MULTILINE)


app = App()


@app.task("double")
async def double(ctx: Ctx, number: int) -> int:
    return 2 * number


def quick(arena: Arena) -> Sequence[Figure]:
    with arena.database() as dsn:
        return [asyncio.run(_one_story(dsn, calls=20))]


def full(arena: Arena) -> Sequence[Figure]:
    cost = _cost(rounds=8, each=800)
    arena.say("measured; now the stories of deaf workers and clients")
    return [_deaf_stories(), cost]


# Nobody listens.


async def _one_story(dsn: str, *, calls: int) -> Figure:
    """A worker that serves, and a client that waits, both deaf."""
    worker = app.worker(dsn=dsn, listen=False)
    async with await Client.connect(dsn, listen=False) as client, worker:
        handles = [await client.submit(double.call(number)) for number in range(calls)]
        waiting = (handle.result(timeout=20) for handle in handles)
        results = await asyncio.gather(*waiting, return_exceptions=True)
    right = sum(result == 2 * number for number, result in enumerate(results))
    return Figure(
        promise="G16",
        what="with LISTEN off: calls that a client saw the result of",
        reached=f"{right} of {calls}",
        target="all",
        held=right == calls,
    )


class Ran(msgspec.Struct, frozen=True):
    """What a run of pytest says of itself."""

    passed: int
    failed: Sequence[str]
    skipped: int
    code: int

    @classmethod
    def of(cls, done: subprocess.CompletedProcess[str]) -> Ran:
        failed = _FAILED.findall(done.stdout)
        return cls(
            _count("passed", done.stdout), failed, _count("skipped", done.stdout), done.returncode
        )


def _count(word: str, said: str) -> int:
    return sum(int(number) for number in re.findall(rf"(\d+) {word}", said))


def _deaf_stories() -> Figure:
    """In two steps, as in `make test`: those that bound a time are run one after the other."""
    everything, about = (
        _count("tests? collected", _deaf_pytest("--collect-only", *these).stdout)
        for these in (STORIES, ABOUT_NOTIFICATIONS)
    )
    deselected = [part for each in ABOUT_NOTIFICATIONS for part in ("--deselect", each)]
    steps = (("-n", "2", "--dist", "worksteal", "-m", "not timing"), ("-m", "timing"))
    return deaf_figure(
        everything, about, [Ran.of(_deaf_pytest(*step, *STORIES, *deselected)) for step in steps]
    )


def deaf_figure(everything: int, about: int, runs: Sequence[Ran]) -> Figure:
    """What ran of everything; what was skipped or left out did not."""
    passed, skipped = sum(run.passed for run in runs), sum(run.skipped for run in runs)
    failed = [name for run in runs for name in run.failed]
    left_out = everything - passed - len(failed) - skipped
    return Figure(
        promise="G16",
        what=f"with LISTEN off: {', '.join(STORIES)}; {about} that are about NOTIFY left out",
        reached=", ".join(
            [
                f"{passed} of {everything} passed",
                f"{len(failed)} failed",
                f"{skipped} skipped",
                f"{left_out} left out",
                *failed[:3],
            ]
        ),
        target=f"{everything - about} passed, 0 skipped",
        held=all(run.code == 0 for run in runs) and passed == everything - about > 0,
    )


def _deaf_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    options = ["-q", "--tb=line", "-rf", "-p", "no:cacheprovider"]
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # deaf before pytest comes
    path = os.pathsep.join([str(DEAF), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *quiet, *arguments],
        cwd=TREE,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


# What notifying costs.


def _cost(*, rounds: int, each: int) -> Figure:
    """The server keeps what it acknowledges, as it does in earnest: commits wait for the disk."""
    with EmbeddedPostgres.start() as server:
        asyncio.run(migrate(server.dsn))
        rates = asyncio.run(_measured(DatabaseConfig(dsn=server.dsn), rounds, each))
    heard, unheard = (statistics.median(rates[which]) for which in (True, False))
    ratio = heard / unheard
    return Figure(
        promise="G16",
        what=f"complete() by {WRITERS} writers while somebody is notified, against nobody",
        reached=f"{ratio:.0%} ({heard:,.0f}/s against {unheard:,.0f}/s)",
        target=f">= {AT_LEAST:.0%}",
        held=ratio >= AT_LEAST,
    )


async def _measured(config: DatabaseConfig, rounds: int, each: int) -> dict[bool, list[float]]:
    """Rounds with and without a waiter, in turns, so that both meet the same moods of the disk."""
    db = await connect(config, role="tests")
    pool_size = WRITERS + 1  # one process with a connection for each writer, and for its notifier
    engine = await Engine.connect(msgspec.structs.replace(config, pool_size=pool_size))
    rates: dict[bool, list[float]] = {True: [], False: []}
    notifications = 0

    def notified(*_: object) -> None:
        nonlocal notifications
        notifications += 1

    try:
        await db.add_listener(CHANNEL, notified)
        for number in range(-2, 2 * rounds):  # the first two are to warm up
            heard = number % 4 in (0, 3)
            leases = await _claimed(db, each)
            await (register(db, "proof", ["completion"]) if heard else deregister(db, "proof"))
            before = notifications
            rate = await _rate(engine, leases)
            await asyncio.sleep(2 * PAUSE)  # until the last notification is sent
            await db.execute("SELECT 1")
            assert (notifications > before) == heard, "who listens hears, and nobody else"
            if number >= 0:
                rates[heard].append(rate)
    finally:
        await engine.close()
        await db.close()
    return rates


async def _claimed(db: Connection, count: int) -> list[Lease]:
    await create_execution(db, [given.new() for _ in range(count)])
    tasks = [
        task
        for _ in range(0, count, 1000)
        for task in await claim(db, given.WORKER, ttl=600, limit=min(count, 1000))
    ]
    return [task.lease for task in tasks]


async def _rate(engine: Engine, leases: Sequence[Lease]) -> float:
    """Completions a second, one a call, by many calls at a time."""

    async def write(mine: Sequence[Lease]) -> None:
        for lease in mine:
            await engine.complete([Completion(lease)])

    begun = time.monotonic()
    await asyncio.gather(*(write(leases[number::WRITERS]) for number in range(WRITERS)))
    return len(leases) / (time.monotonic() - begun)


NOTIFY: Final = Proof("notify", quick=quick, full=full, claims=("G16",))
