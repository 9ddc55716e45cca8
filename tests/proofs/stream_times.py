"""How long an append takes, and how late frames are read, also beside readers that are stalled."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.streams.append_frame import Append
from flowfabric.engine.streams.frame import NewFrame
from tests import given
from tests.proofs.figures import Figure

EACH: Final = 5
"""Frames of one append."""
LOOK_EVERY: Final = 0.02
WAITING: Final = """
SELECT count(*) FROM pg_stat_activity a, unnest(pg_blocking_pids(a.pid)) AS blocking (pid)
  JOIN pg_stat_activity b USING (pid)
 WHERE a.datname = current_database() AND a.wait_event_type = 'Lock'
   AND a.query LIKE '%append_frames%' AND b.query LIKE '%read_frames%'
"""


class Load(msgspec.Struct, frozen=True):
    """Who writes and who reads, in one process and over one pool."""

    writers: int
    readers: int
    pause: float
    """Seconds between two appends of a writer."""
    appends: int
    """Of each writer, in each round."""
    rounds: int
    pool: int = 4


class Times(msgspec.Struct):
    """What was measured, in milliseconds."""

    alone: list[float] = msgspec.field(default_factory=list[float])
    """Appends while nobody reads."""
    read: list[float] = msgspec.field(default_factory=list[float])
    """Appends while all read, some of them stalled."""
    unstalled: list[list[float]] = msgspec.field(default_factory=list[list[float]])
    """From the call of an append to a reader that has its last frame, while nobody is stalled;
    round by round."""
    stalled: list[list[float]] = msgspec.field(default_factory=list[list[float]])
    """The same for the other readers while a process that reads is stopped."""
    waits: int = 0
    """How often an append was seen waiting for a lock of a reader."""
    looks: int = 0
    missing: int = 0
    """Frames that some reader did not get, the process that was stopped among them."""


async def measured(dsn: str, load: Load) -> Times:
    """Rounds without readers, with readers, and with a stopped process beside them, in turn."""
    times = Times()
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    looking = await connect(DatabaseConfig(dsn=dsn), role="tests")
    engine = await Engine.connect(DatabaseConfig(dsn=dsn, pool_size=load.pool), role="tests")
    watching = asyncio.create_task(_watch(looking, times))
    try:
        for _ in range(load.rounds):
            unstalled, stalled = list[float](), list[float]()
            times.alone += await _round(db, engine, load, times)
            await _round(db, engine, load, times, late=unstalled)
            times.read += await _round(db, engine, load, times, late=stalled, stalled_at=dsn)
            times.unstalled.append(unstalled)
            times.stalled.append(stalled)
    finally:
        watching.cancel()
        await asyncio.wait((watching,))
        await engine.close()
        await looking.close()
        await db.close()
    return times


async def _round(
    db: Connection,
    engine: Engine,
    load: Load,
    times: Times,
    *,
    late: list[float] | None = None,
    stalled_at: str | None = None,
) -> list[float]:
    """The times of all appends; with `late` readers follow, and tell there how late frames come."""
    leases = await claimed_leases(db, load.writers)
    following = [
        asyncio.create_task(_follow(engine, leases[each % load.writers], late))
        for each in range(load.readers)
        if late is not None
    ]
    await asyncio.gather(*(_append(engine, each) for each in leases))
    async with _stalled(stalled_at, leases) as stopped:
        began = await asyncio.gather(
            *(
                _write(engine, lease, load, number * load.pause / load.writers)
                for number, lease in enumerate(leases)
            )
        )
        await complete(db, [Completion(each) for each in leases])
        async with asyncio.timeout(60):
            read = await asyncio.gather(*following)
    wanted = (load.appends + 1) * EACH
    times.missing += sum(abs(wanted - each) for each in read)
    if stopped:
        times.missing += abs(wanted * len(leases) - stopped[0])
    return [each for some in began for each in some]


async def claimed_leases(db: Connection, number: int) -> list[Lease]:
    """The leases of so many new executions."""
    await create_execution(db, [given.new() for _ in range(number)])
    return [each.lease for each in await claim(db, given.WORKER, ttl=3600, limit=number)]


async def _write(engine: Engine, lease: Lease, load: Load, first: float) -> list[float]:
    await asyncio.sleep(first)
    took: list[float] = []
    for _ in range(load.appends):
        took.append(await _append(engine, lease))
        await asyncio.sleep(load.pause)
    return took


async def _append(engine: Engine, lease: Lease) -> float:
    """Append frames that say when; how many milliseconds it took."""
    began = time.monotonic()
    said = str(began).encode()
    frames = [NewFrame(payload=said, frame_type="at") for _ in range(EACH)]
    [answer] = await engine.append_frames([Append(lease=lease, frames=frames)])
    assert isinstance(answer, list), answer
    return (time.monotonic() - began) * 1000


async def _follow(engine: Engine, lease: Lease, late: list[float]) -> int:
    """How many frames came; of the last one of each append, how late it came."""
    counted = 0
    async for frame in await engine.follow_stream(lease.execution_id):
        counted += 1
        if counted % EACH == 0 and counted > EACH:
            late.append((time.monotonic() - float(frame.payload)) * 1000)
    return counted


@contextlib.asynccontextmanager
async def _stalled(dsn: str | None, leases: Sequence[Lease]) -> AsyncGenerator[list[int]]:
    """With a DSN another process follows all, and is stopped while the block runs.

    After the block the list has how many frames it has read.
    """
    counted: list[int] = []
    if dsn is None:
        yield counted
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.proofs.following",
        dsn,
        *(str(each.execution_id) for each in leases),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGSTOP)
        try:
            yield counted
        finally:
            process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(60):
            counted.append(int(await process.stdout.readline()))
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()


async def _watch(db: Connection, times: Times) -> None:
    while True:
        times.waits += await db.fetchval(WAITING)
        times.looks += 1
        await asyncio.sleep(LOOK_EVERY)


def beside_stalled(times: Times, load: Load, *, at_most: float, percent: int = 99) -> Figure:
    """How late readers are while others are stalled: `at_most` times as late as otherwise.

    The two rounds of a pair are compared with each other, and the median pair decides: of single
    rounds the slowest hundredth, some milliseconds, differs by chance. Beside other tests it says
    how busy the machine was: compare the medians then.
    """
    pairs = [
        (_percentile(stalled, percent), _percentile(unstalled, percent))
        for stalled, unstalled in zip(times.stalled, times.unstalled, strict=True)
    ]
    stalled, unstalled = (statistics.median(each) for each in zip(*pairs, strict=True))
    worse = statistics.median(one / other for one, other in pairs)
    return Figure(
        "G12",
        f"{_crowd(load)}, a process with {load.writers} more stopped: frames that a reader misses;"
        f" p{percent} of the others, and while none is stopped",
        f"{times.missing}; {stalled:.0f}, {unstalled:.0f} ms ({worse:.2f} x)",
        f"0; {at_most:g} x",
        held=not times.missing and worse <= at_most,
    )


def beside_readers(times: Times, load: Load, *, at_most: float) -> Figure:
    """How long appends take while many read: `at_most` times as long, as all share one process."""
    slower = _percentile(times.read, 50) / _percentile(times.alone, 50)
    return Figure(
        "G12",
        f"{_crowd(load)}: appends seen waiting for a reader's lock; p50 / p99 of appends with all"
        " readers, some stopped, and without any",
        f"{times.waits} in {times.looks} looks; {_both(times.read)}, {_both(times.alone)} ms"
        f" (p50 {slower:.2f} x)",
        f"0; {at_most:g} x",
        held=not times.waits and times.looks > 0 and slower <= at_most,
    )


def _crowd(load: Load) -> str:
    return f"{load.writers} writers, {load.readers} readers on one pool of {load.pool}"


def _both(values: Sequence[float]) -> str:
    return f"{_percentile(values, 50):.0f} / {_percentile(values, 99):.0f}"


def _percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]
