"""G18: workers are replaced one by one under load, and nothing fails, is counted or waits."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Final
from uuid import UUID

import msgspec

from flowfabric import Client
from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.stories.processes import WorkerProcess, all_completed, workers, worst_counts
from tests.stories.shop import nap
from tests.worker.facts import count, eventually, lease_expired_events, told_twice

VISIBLE_WITHIN: Final = 1.0
SLOTS: Final = 25
NAP: Final = 0.2
LONG_NAPS: Final = 4
"""Each of a TTL and what a sweep needs to find a lease that ran out, and to spare."""
TO_SPARE: Final = 2.0
PATIENT: Final = 10.0
DRAINS: Final = (0.0, PATIENT, 0.1)
"""By turns: hand back at once, wait for what runs, wait too short a time."""

HELD = """
SELECT execution_id FROM ff.execution
 WHERE worker_instance_id = $1 AND lifecycle_phase = 'active'
"""
HANDED_BACK = """
SELECT DISTINCT execution_id FROM ff.lease_event
 WHERE worker_instance_id = $1 AND reason = 'released'
"""
REGISTERED = "SELECT EXISTS (SELECT FROM ff.worker_registry WHERE worker_instance_id = $1)"


class Restart(msgspec.Struct, frozen=True):
    """How one worker went."""

    exit_code: int
    hand_backs: list[float]
    """Seconds from the order to stop, or from the end of the drain, until a row was free."""


async def _roll(dsn: str, *, executions: int, restarts: int, ttl: float) -> list[Figure]:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    client = await Client.connect(dsn)
    try:
        went = await _restarts(dsn, db, client, executions, restarts, ttl)
        return await _figures(db, executions, went)
    finally:
        await client.close()
        await db.close()


async def _restarts(
    dsn: str, db: Connection, client: Client, executions: int, restarts: int, ttl: float
) -> list[Restart]:
    """A worker comes, some work comes, and the worker that has been there longest goes.

    One that waits for what runs is given some that takes longer than its leases last.
    """
    went: list[Restart] = []
    async with workers(dsn) as running:

        async def hire() -> None:
            settings = {"concurrency": SLOTS, "lease_ttl": ttl, "drain": _drain(len(running))}
            settings["quiet"] = True
            name = f"worker-{len(running)}"
            running.append(await WorkerProcess.start(dsn, name, **settings))
            await eventually(lambda: db.fetchval(REGISTERED, name), within=30)

        await hire()
        for number in range(restarts):
            retiring, left = running[number].instance, executions // restarts
            if _drain(number) == PATIENT:
                left -= LONG_NAPS
                await client.submit_many([nap.call(ttl + TO_SPARE) for _ in range(LONG_NAPS)])
                await _holds(db, retiring, LONG_NAPS)
            await hire()
            await client.submit_many([nap.call(NAP) for _ in range(left)])
            await _holds(db, retiring, 1)
            went.append(await _retire(db, running[number], _drain(number)))
        await eventually(lambda: all_completed(db), within=120)
    return went


async def _holds(db: Connection, instance: str, number: int) -> None:
    """Wait until the worker holds so many."""

    async def held() -> bool:
        return len(await db.fetch(HELD, instance)) >= number

    await eventually(held, within=30)


def _drain(number: int) -> float:
    return DRAINS[number % len(DRAINS)]


async def _retire(db: Connection, worker: WorkerProcess, drain: float) -> Restart:
    """Stop a worker, and see what it holds go free one by one."""
    held: set[UUID] = {row["execution_id"] for row in await db.fetch(HELD, worker.instance)}
    free_after: dict[UUID, float] = {}
    ordered = time.monotonic()
    worker.terminate()
    while held:
        now_held = {row["execution_id"] for row in await db.fetch(HELD, worker.instance)}
        seconds = time.monotonic() - ordered
        free_after |= dict.fromkeys(held - now_held, seconds)
        held = now_held
        await asyncio.sleep(0.002)
        assert seconds < drain + 30, f"{worker.instance} still holds {len(held)}"
    handed_back = {row["execution_id"] for row in await db.fetch(HANDED_BACK, worker.instance)}
    return Restart(
        exit_code=await worker.exit_code(),
        hand_backs=[
            seconds - drain if seconds > drain else seconds
            for execution_id, seconds in free_after.items()
            if execution_id in handed_back
        ],
    )


async def _figures(db: Connection, executions: int, went: list[Restart]) -> list[Figure]:
    completed = await count(db, "completed")
    attempts, retries, reclaims = await worst_counts(db)
    expired, twice = await lease_expired_events(db), await told_twice(db)
    seconds = sorted(each for restart in went for each in restart.hand_backs)
    bad_exits = sum(restart.exit_code != 0 for restart in went)
    middle = statistics.median(seconds) if seconds else 0.0
    slowest = seconds[-1] if seconds else 0.0
    return [
        Figure(
            "G18",
            f"{len(went)} rolling restarts, {executions:,} executions: completed",
            f"{completed:,}, {executions - completed} not, {bad_exits} bad exits",
            "all, 0 failed",
            held=completed == executions and not bad_exits,
        ),
        Figure(
            "G18",
            "most attempts, retries and reclaims of one; leases lost; told twice",
            f"{attempts}, {retries}, {reclaims}; {expired}; {twice}",
            "1, 0, 0; 0; 0",
            held=(attempts, retries, reclaims, expired, twice) == (1, 0, 0, 0, 0),
        ),
        Figure(
            "G18",
            f"{len(seconds)} handed back, visible after",
            f"median {middle * 1000:.0f} ms, max {slowest * 1000:.0f} ms",
            f"max <= {VISIBLE_WITHIN * 1000:.0f} ms, at least one",
            held=bool(seconds) and slowest <= VISIBLE_WITHIN,
        ),
    ]


def quick(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_roll(dsn, executions=120, restarts=3, ttl=1))


def full(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_roll(dsn, executions=5_000, restarts=20, ttl=2))


DRAIN: Final = Proof("drain", quick, full, claims=("G18",), timed=True)
