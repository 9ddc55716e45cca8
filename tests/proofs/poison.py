"""G6: an execution that kills its workers ends after three claims, and its neighbours finish."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from flowfabric import Client
from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.ids import ExecutionId
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.stories.processes import WorkerProcess, serving, workers
from tests.stories.shop import nap, poison
from tests.worker.facts import count, eventually, told_twice

CLAIMS: Final = 3
ENOUGH: Final = 3 * CLAIMS
"""Deaths after which it is clear that they do not end."""
REASON: Final = "max_reclaims_exceeded"
AT_MOST: Final = 2.0
"""How much longer the neighbours may take than without the poison."""
SLOTS: Final = 4
NAP: Final = 0.08

P99 = """
SELECT percentile_disc(0.99) WITHIN GROUP (ORDER BY terminal_at_ms - created_at_ms) / 1000.0
  FROM ff.execution WHERE public_state = 'completed'
"""
CLAIMED = """
SELECT count(*) FROM ff.lease_event
 WHERE execution_id = $1 AND event_type IN ('acquired', 'reclaimed')
"""
HOW_IT_ENDED = "SELECT public_state, failure_reason FROM ff.execution WHERE execution_id = $1"


class Run(msgspec.Struct, frozen=True):
    """One lot of neighbours, with the poison among them or without."""

    completed: int
    p99: float
    deaths: int = 0
    claims: int = 0
    end: str = ""
    told_twice: int = 0


async def _run(dsn: str, *, neighbours: int, ttl: float, poisoned: bool) -> Run:
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    client = await Client.connect(dsn)
    try:
        settings = {"concurrency": SLOTS, "lease_ttl": ttl, "quiet": True}
        async with workers(dsn, "worker-0", "worker-1", **settings) as running:
            await serving(db, 2)
            await client.submit_many([nap.call(NAP) for _ in range(neighbours)])
            bad = (await client.submit(poison.call(), priority=1)) if poisoned else None
            deaths = 0

            async def tended() -> bool:
                """Replace workers that died; has everything ended, or did it go on for too long?"""
                nonlocal deaths
                for number, process in enumerate(running):
                    if process.ended:
                        deaths += 1
                        name = f"worker-{1 + deaths}"
                        running[number] = await WorkerProcess.start(dsn, name, **settings)
                return deaths > ENOUGH or not await db.fetchval(
                    "SELECT EXISTS (SELECT FROM ff.execution WHERE lifecycle_phase <> 'terminal')"
                )

            await eventually(tended, within=120)
        run = Run(await count(db, "completed"), float(await db.fetchval(P99) or 0), deaths)
        return run if bad is None else await _with_its_end(db, run, bad.execution_id)
    finally:
        await client.close()
        await db.close()


async def _with_its_end(db: Connection, run: Run, bad: ExecutionId) -> Run:
    ended = await db.fetchrow(HOW_IT_ENDED, bad.uuid)
    assert ended is not None
    return msgspec.structs.replace(
        run,
        claims=await db.fetchval(CLAIMED, bad.uuid),
        end=f"{ended['public_state']}, {ended['failure_reason']}",
        told_twice=await told_twice(db),
    )


def _figures(run: Run, neighbours: int) -> list[Figure]:
    return [
        Figure(
            "G6",
            "claims of an execution that calls os._exit(9), and its end",
            f"{run.claims} claims, {run.deaths} dead workers: {run.end}",
            f"{CLAIMS} claims, {CLAIMS} dead workers: failed, {REASON}",
            held=(run.claims, run.deaths, run.end) == (CLAIMS, CLAIMS, f"failed, {REASON}"),
        ),
        Figure(
            "G6",
            f"of {neighbours:,} neighbours completed; told twice",
            f"{run.completed:,}; {run.told_twice}",
            "all; 0",
            held=run.completed == neighbours and not run.told_twice,
        ),
    ]


def _compared(run: Run, control: Run) -> Figure:
    ratio = run.p99 / control.p99
    return Figure(
        "G6",
        "their p99 from submit to end, against the same without poison",
        f"{run.p99:.1f} s / {control.p99:.1f} s = {ratio:.2f}",
        f"<= {AT_MOST:g}",
        held=ratio <= AT_MOST and control.completed == run.completed,
    )


def quick(arena: Arena) -> list[Figure]:
    """Without the comparison: so few neighbours are done before the poison is."""
    with arena.database() as dsn:
        run = asyncio.run(_run(dsn, neighbours=100, ttl=1, poisoned=True))
    return _figures(run, 100)


def full(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        control = asyncio.run(_run(dsn, neighbours=1_000, ttl=2, poisoned=False))
    with arena.database() as dsn:
        run = asyncio.run(_run(dsn, neighbours=1_000, ttl=2, poisoned=True))
    return [*_figures(run, 1_000), _compared(run, control)]


POISON: Final = Proof("poison", quick, full, claims=("G6",))
