"""G2, G5: a killed worker is noticed by its closed connection, long before its leases expire.

A frozen worker and one behind a pooler are not: their leases last for their TTL. A connection that
is cut and mended costs no lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric import Client
from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from tests import pgbouncer
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.stories.processes import WorkerProcess, all_completed, workers
from tests.stories.shop import nap
from tests.worker.facts import count, eventually, told_twice
from tests.worker.proxy import Proxy

TTL: Final = 30.0
WITHIN: Final = 3.0
"""A killed worker's executions are held by another one so soon after the kill."""
CUT_FOR: Final = 1.0
SLOTS: Final = 8
LONG: Final = 60.0
"""Seconds that a handler takes which does not end by itself here."""

LIVES = "SELECT EXISTS (SELECT FROM ff.worker_registry WHERE worker_instance_id = $1)"
HELD = """
SELECT count(*) FROM ff.execution
 WHERE lifecycle_phase = 'active' AND worker_instance_id = $1
   AND ($2::uuid[] IS NULL OR execution_id = ANY ($2))
"""
EXPIRIES = """
SELECT coalesce(l.reason, 'expired') AS reason, l.occurred_at_ms FROM ff.lease_event l
 WHERE l.event_type = 'expired' AND l.worker_instance_id = $1
"""
LAST_EXPIRY = "SELECT max(lease_expires_at_ms) FROM ff.lease WHERE worker_instance_id = $1"
STARTED_LONG_AGO = "SELECT clock_timestamp() - pg_postmaster_start_time() > interval '5 seconds'"
"""A server that has just started takes every worker for alive."""
MISSED = """
SELECT lock_missed_at_ms IS NOT NULL FROM ff.worker_registry WHERE worker_instance_id = $1
"""


class Stage(msgspec.Struct, frozen=True):
    """A database, a client of it, and the workers that run."""

    dsn: str
    db: Connection
    client: Client
    running: list[WorkerProcess]

    async def hire(self, name: str, *, dsn: str = "", **settings: Any) -> WorkerProcess:
        """A worker that serves."""
        defaults = {"concurrency": 2 * SLOTS, "lease_ttl": TTL, "quiet": True}
        worker = await WorkerProcess.start(dsn or self.dsn, name, **(defaults | settings))
        self.running.append(worker)
        await eventually(lambda: self.db.fetchval(LIVES, name), within=30)
        return worker

    async def holds(
        self,
        worker: WorkerProcess,
        number: int,
        *,
        of: Sequence[UUID] | None = None,
        within: float = 30.0,
    ) -> None:
        """Wait until the worker holds so many, of those with these ids."""

        async def held() -> bool:
            return await self.db.fetchval(HELD, worker.instance, of) >= number

        await eventually(held, within=within)

    async def expiries(self, worker: WorkerProcess) -> list[tuple[str, int]]:
        """How and when leases of the worker were voided."""
        rows = await self.db.fetch(EXPIRIES, worker.instance)
        return [(row["reason"], row["occurred_at_ms"]) for row in rows]


@contextlib.asynccontextmanager
async def _stage(dsn: str) -> AsyncGenerator[Stage]:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    client = await Client.connect(dsn)
    try:
        async with workers(dsn) as running:
            yield Stage(dsn, db, client, running)
    finally:
        await client.close()
        await db.close()


async def _kill(dsn: str, *, kills: int, executions: int) -> list[Figure]:
    """Workers are killed one after the other in the middle of their work; others finish it."""
    seconds: list[float] = []
    async with _stage(dsn) as stage:
        await eventually(lambda: stage.db.fetchval(STARTED_LONG_AGO), within=10)
        doomed = await stage.hire("worker-0")
        for number in range(kills):
            handles = await stage.client.submit_many([nap.call(LONG) for _ in range(SLOTS)])
            long = [handle.execution_id.uuid for handle in handles]
            await stage.holds(doomed, SLOTS, of=long)
            heir = await stage.hire(f"worker-{number + 1}")
            await stage.client.submit_many([nap.call(0.05) for _ in range(executions // kills)])
            await stage.holds(doomed, SLOTS + 1)
            killed = time.monotonic()
            doomed.kill()
            await stage.holds(heir, SLOTS, of=long, within=TTL + 10)
            seconds.append(time.monotonic() - killed)
            for handle in handles:
                await handle.cancel(reason="the round is over")
            doomed = heir
        await eventually(lambda: _all_ended(stage.db), within=60)
        lost = executions - await count(stage.db, "completed")
        twice = await told_twice(stage.db)
    return [
        Figure(
            "G5",
            f"{kills} workers killed with {SLOTS} leases of {TTL:g} s each: all held by another",
            f"after {max(seconds):.2f} s at most",
            f"{WITHIN:g} s",
            held=max(seconds) <= WITHIN,
        ),
        Figure(
            "G2",
            f"{executions:,} executions meanwhile: lost, with two outcomes",
            f"{lost}, {twice}",
            "0, 0",
            held=(lost, twice) == (0, 0),
        ),
    ]


async def _all_ended(db: Connection) -> bool:
    return not await db.fetchval(
        "SELECT count(*) FROM ff.exec_core WHERE lifecycle_phase <> 'terminal'"
    )


async def _cut(dsn: str, *, cuts: int) -> Figure:
    """The connections of a worker are cut for a second, again and again, while another sweeps."""
    missed = 0
    async with Proxy.to(dsn) as proxy, _stage(dsn) as stage:
        worker = await stage.hire("cut", dsn=proxy.dsn)
        await stage.hire("sweeper", lanes=["other"])
        await stage.client.submit_many([nap.call(CUT_FOR * 4 * cuts) for _ in range(SLOTS)])
        await stage.holds(worker, SLOTS)
        for _ in range(cuts):
            proxy.cut()
            mended_at = time.monotonic() + CUT_FOR
            while time.monotonic() < mended_at:
                missed += bool(await stage.db.fetchval(MISSED, worker.instance))
                await asyncio.sleep(0.05)
            proxy.mend()
            await asyncio.sleep(2 * CUT_FOR)
        await eventually(lambda: all_completed(stage.db), within=60)
        lost = len(await stage.expiries(worker))
    return Figure(
        "G5",
        f"connections cut {cuts} times for {CUT_FOR:g} s: leases lost; missed by a sweep",
        f"{lost}; {'yes' if missed else 'no'}",
        "0; yes",
        held=lost == 0 and missed > 0,
    )


async def _outlast(dsn: str, *, through: str = "", ttl: float) -> list[tuple[str, float]]:
    """How the leases end of a worker that is frozen, or is killed behind a pooler; and how early.

    The times are seconds after the lease expired, by the clock of the database.
    """
    async with _stage(dsn) as stage:
        settings: dict[str, Any] = {"dsn": through, "pooler": True} if through else {}
        worker = await stage.hire("doomed", lease_ttl=ttl, **settings)
        await stage.hire("heir", lanes=["other"])
        await stage.client.submit_many([nap.call(LONG) for _ in range(SLOTS)])
        await stage.holds(worker, SLOTS)
        if through:
            worker.kill()
        else:
            worker.freeze()
        expires_at = await stage.db.fetchval(LAST_EXPIRY, worker.instance)

        async def all_voided() -> bool:
            return len(await stage.expiries(worker)) == SLOTS

        await eventually(all_voided, within=ttl + 20)
        return [(reason, (at - expires_at) / 1000) for reason, at in await stage.expiries(worker)]


def _outlasted(what: str, ttl: float, expiries: Sequence[tuple[str, float]]) -> Figure:
    early = sum(reason != "expired" or after < 0 for reason, after in expiries)
    return Figure(
        "G5",
        f"{what}, {len(expiries)} leases of {ttl:g} s: voided before they expired",
        f"{early}, the first {min(after for _, after in expiries):.2f} s later",
        "0",
        held=early == 0,
    )


async def _kill_pooled(dsn: str, ttl: float) -> Figure:
    what = "a worker killed behind PgBouncer"
    if pgbouncer.installed() is None:
        return Figure("G5", what, "pgbouncer is not installed", "0", held=True, skipped=True)
    with pgbouncer.PgBouncer.start(dsn) as pooler:
        return _outlasted(what, ttl, await _outlast(dsn, through=pooler.through(dsn), ttl=ttl))


async def _freeze(dsn: str, ttl: float) -> Figure:
    return _outlasted("a frozen worker", ttl, await _outlast(dsn, ttl=ttl))


async def _spare(dsns: Sequence[str], *, cuts: int, ttl: float) -> list[Figure]:
    """The workers that are not taken for dead, at the same time, each in its own database."""
    spared = await asyncio.gather(
        _cut(dsns[0], cuts=cuts), _freeze(dsns[1], ttl), _kill_pooled(dsns[2], ttl)
    )
    return list(spared)


def _run(arena: Arena, *, kills: int, executions: int, cuts: int, ttl: float) -> list[Figure]:
    with arena.database() as dsn:
        figures = asyncio.run(_kill(dsn, kills=kills, executions=executions))
    with contextlib.ExitStack() as stack:
        dsns = [stack.enter_context(arena.database()) for _ in range(3)]
        return [*figures, *asyncio.run(_spare(dsns, cuts=cuts, ttl=ttl))]


def quick(arena: Arena) -> list[Figure]:
    return _run(arena, kills=1, executions=50, cuts=1, ttl=5)


def full(arena: Arena) -> list[Figure]:
    return _run(arena, kills=20, executions=2_000, cuts=10, ttl=TTL)


LIVENESS: Final = Proof("liveness", quick, full, claims=("G2", "G5"), timed=True)
