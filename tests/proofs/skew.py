"""G15: clients and workers whose clocks are wrong by minutes or a day change nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from flowfabric import Client
from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.stories.processes import WorkerProcess, serving, workers
from tests.stories.shop import clock, nap
from tests.walls.sources import modules
from tests.walls.test_gates import MAY_READ_THE_CLOCK, clocks_read
from tests.worker.facts import eventually

MINUTES, DAY = 600.0, 86_400.0
MODULE: Final = "tests.proofs.skewed"
DELAY, DEADLINE = 1.5, 2.0
SLACK: Final = 1.0
PROMOTED_EVERY, LEASES_EVERY, DEADLINES_EVERY = 0.75, 1.0, 5.0
"""How often the sweeps of a delay, a lease and a deadline run."""
ORPHANS: Final = 4

LEFT = """
SELECT count(*) FROM ff.execution
 WHERE tags ->> 'proof.kind' = $1 AND lifecycle_phase <> 'terminal'
"""
STARTED = """
SELECT min(l.occurred_at_ms) - e.created_at_ms AS ms
  FROM ff.execution e JOIN ff.lease_event l USING (execution_id)
 WHERE e.tags ->> 'proof.kind' = 'delayed' AND l.event_type = 'acquired'
 GROUP BY e.execution_id, e.created_at_ms
"""
OVERDUE = """
SELECT terminal_at_ms - deadline_at_ms AS ms FROM ff.execution
 WHERE tags ->> 'proof.kind' IN ('overdue', 'unserved') AND public_state = 'expired'
"""
NOT_EXPIRED = """
SELECT count(*) FROM ff.execution
 WHERE tags ->> 'proof.kind' IN ('overdue', 'unserved') AND public_state <> 'expired'
"""
RECLAIMED = """
SELECT lost.occurred_at_ms - max(kept.occurred_at_ms) AS ms
  FROM ff.lease_event lost JOIN ff.lease_event kept USING (execution_id)
 WHERE lost.event_type = 'expired' AND kept.event_id < lost.event_id
   AND kept.event_type IN ('acquired', 'reclaimed', 'renewed')
   AND lost.tags ->> 'proof.kind' IS DISTINCT FROM 'overdue'  -- those end by their deadline
 GROUP BY lost.event_id, lost.occurred_at_ms
"""
LEASES = """
SELECT (lease_expires_at_ms - ff.now_ms()) / 1000.0 AS left_s FROM ff.execution
 WHERE lifecycle_phase = 'active'
"""
HELD = """
SELECT execution_id FROM ff.execution
 WHERE worker_instance_id = $1 AND tags ->> 'proof.kind' = 'orphan'
"""


class Watch:
    """How long the leases that are held still run, asked for all the time."""

    def __init__(self, db: Connection) -> None:
        self._db, self.seen = db, list[float]()

    async def run(self) -> None:
        while True:
            self.seen += [float(row["left_s"]) for row in await self._db.fetch(LEASES)]
            await asyncio.sleep(0.02)


async def _skew(dsn: str, shifts: Sequence[float], *, ttl: float, number: int) -> list[Figure]:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    other = await connect(DatabaseConfig(dsn=dsn), role="tests")
    client = await Client.connect(dsn)
    watch = Watch(other)
    try:
        async with workers(dsn) as running:
            for shift in shifts:
                settings = {"lease_ttl": ttl, "lease_history": "full", "concurrency": 4 * number}
                name = f"worker-{len(running)}"
                running.append(await _start(dsn, name, skew=shift, **settings))
            await serving(db, len(shifts))
            wrong_by = await _clocks(client, len(shifts))
            watching = asyncio.create_task(watch.run())
            submit = {"number": number, "long": 2.5 * ttl, "delay": DELAY, "deadline": DEADLINE}
            for shift in shifts:
                running.append(await _start(dsn, "submitter", skew=shift, submit=submit))
            submitters = running[len(shifts) :]
            assert [await each.exit_code(30) for each in submitters] == [0] * len(shifts)
            for kind in ("delayed", "long"):
                await eventually(lambda kind=kind: _done(db, kind), within=60)
            await _orphan(db, client, running[0])
            for kind in ("overdue", "unserved"):
                await eventually(lambda kind=kind: _done(db, kind), within=60)
            watching.cancel()
        return [
            _clock_figure(wrong_by, shifts),
            *await _lease_figures(db, watch, ttl),
            *await _time_figures(db),
            _lint(),
        ]
    finally:
        await client.close()
        await other.close()
        await db.close()


async def _start(dsn: str, name: str, **settings: Any) -> WorkerProcess:
    return await WorkerProcess.start(dsn, name, module=MODULE, quiet=True, **settings)


async def _done(db: Connection, kind: str) -> bool:
    return await db.fetchval(LEFT, kind) == 0


async def _clocks(client: Client, workers_: int) -> set[int]:
    """By how many minutes the workers' clocks are off, as their handlers see it."""
    off: set[int] = set()
    for _ in range(200):
        handles = await client.submit_many([clock.call() for _ in range(4 * workers_)])
        for handle in handles:
            by_time, by_datetime = await handle.result(timeout=20)
            off |= {round((each - time.time()) / 60) for each in (by_time, by_datetime)}
        if len(off) >= workers_:
            break
    return off


async def _orphan(db: Connection, client: Client, victim: WorkerProcess) -> None:
    """Kill a worker in the middle of its work, and see that it is taken from it."""
    while not await db.fetch(HELD, victim.instance):
        calls = [nap.call(60) for _ in range(ORPHANS)]
        await client.submit_many(calls, tags={"proof.kind": "orphan"})
        await asyncio.sleep(0.1)
    victim.kill()

    async def taken_over() -> bool:
        return not await db.fetch(HELD, victim.instance)

    await eventually(taken_over, within=30)


def _clock_figure(wrong_by: set[int], shifts: Sequence[float]) -> Figure:
    wanted = {round(shift / 60) for shift in shifts}
    return Figure(
        "G15",
        "minutes by which workers' and clients' clocks were off",
        ", ".join(f"{each:+}" for each in sorted(wrong_by)),
        ", ".join(f"{each:+}" for each in sorted(wanted)),
        held=wrong_by == wanted,
    )


async def _lease_figures(db: Connection, watch: Watch, ttl: float) -> list[Figure]:
    lost = [row["ms"] / 1000 - ttl for row in await db.fetch(RECLAIMED)]
    early = sum(seconds < 0 for seconds in lost)
    most = max(watch.seen)
    return [
        Figure("G15", "leases reclaimed before they had run out", str(early), "0", held=early == 0),
        _between("leases of a killed worker: reclaimed after their end", lost, LEASES_EVERY),
        Figure(
            "G15",
            f"the most that a lease had left, of {len(watch.seen):,} looks",
            f"{most:.2f} s",
            f"<= {ttl:g} s",
            held=most <= ttl,
        ),
    ]


async def _time_figures(db: Connection) -> list[Figure]:
    started = [row["ms"] / 1000 - DELAY for row in await db.fetch(STARTED)]
    expired = [row["ms"] / 1000 for row in await db.fetch(OVERDUE)]
    missed = await db.fetchval(NOT_EXPIRED)
    deadlines = _between("deadlines: expired after their moment", expired, DEADLINES_EVERY)
    return [
        _between("delayed: started after their moment", started, PROMOTED_EVERY),
        deadlines,
        Figure("G15", "deadlines that were missed", str(missed), "0", held=missed == 0),
    ]


def _between(what: str, seconds: Sequence[float], every: float) -> Figure:
    """Never before the moment, and after it no later than the sweep allows."""
    most = every + SLACK
    if not seconds:
        return Figure("G15", what, "none", f"0 to {most:g} s", held=False)
    reached = f"{min(seconds):.2f} to {max(seconds):.2f} s, {len(seconds)} of them"
    held = min(seconds) >= 0 and max(seconds) <= most
    return Figure("G15", what, reached, f"0 to {most:g} s", held=held)


def _lint() -> Figure:
    """The wall of tests/walls/test_gates.py, counted."""
    found = [
        finding
        for module in modules()
        for owner, finding in clocks_read(module)
        if owner not in MAY_READ_THE_CLOCK
    ]
    return Figure(
        "G15",
        "places in src that read this machine's clock for the database",
        str(len(found)),
        "0",
        held=not found,
    )


def quick(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_skew(dsn, (DAY, -DAY), ttl=1.5, number=3))


def full(arena: Arena) -> list[Figure]:
    shifts = (DAY, -DAY, MINUTES, -MINUTES)
    with arena.database() as dsn:
        return asyncio.run(_skew(dsn, shifts, ttl=2, number=25))


SKEW: Final = Proof("skew", quick, full, claims=("G15",), timed=True)
