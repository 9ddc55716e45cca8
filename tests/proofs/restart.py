"""G19: Postgres goes away under handlers that make every kind of call, and none of them fails."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import asyncpg
import msgspec

from flowfabric import App, Client, Ctx, Retry
from flowfabric.db.migrate import migrate
from tests.proofs.arena import Arena
from tests.proofs.chaos.server import Server
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.worker.facts import eventually

T = TypeVar("T")

ONCE: Final = Retry(max_retries=0)
KINDS: Final = ("progress", "sync progress", "upstreams", "spawn", "step", "transaction")
WORKERS: Final = 2
LASTING: Final = 12.0
"""The TTL of leases in the short outage."""
SPAWNED: Final = 12
STEPS: Final = 40
BRIEFLY: Final = 0.2
"""With the shutdown and the start of the server, about a second."""

_ENDED: Final = """
SELECT count(*) FILTER (WHERE lifecycle_phase <> 'terminal') AS going,
       count(*) FILTER (WHERE public_state = 'completed') AS completed,
       count(*) FILTER (WHERE terminal_outcome NOT IN ('none', 'success')) AS failed,
       string_agg(DISTINCT failure_reason, '; ') FILTER (WHERE public_state = 'failed') AS reasons,
       coalesce(max(infra_release_count), 0) AS releases
  FROM ff.execution
"""
_TWICE: Final = """
SELECT count(*) FROM (SELECT FROM ff.completion_event GROUP BY execution_id HAVING count(*) > 1)
    AS twice
"""


class Size(msgspec.Struct, frozen=True):
    """How many pieces of each kind run when Postgres goes away, and for how long each goes on."""

    pieces: int
    rounds: int
    ttl: float


QUICK: Final = Size(pieces=2, rounds=1, ttl=2.0)
FULL: Final = Size(pieces=8, rounds=6, ttl=2.0)


class Calls:
    """The calls of handlers, and which of them were in flight while Postgres was away."""

    def __init__(self) -> None:
        self.flying: Counter[str] = Counter()
        self.met: Counter[str] = Counter()
        self.made: Counter[str] = Counter()

    async def made_as(self, kind: str, call: Awaitable[T]) -> T:
        self.flying[kind] += 1
        self.made[kind] += 1
        try:
            return await call
        finally:
            self.flying[kind] -= 1

    def note_strike(self) -> None:
        """Postgres is about to go: the transactions that are open are lost with it."""
        self.met["transaction"] += self.flying["transaction"]

    def note_outage(self) -> None:
        """Postgres is away: the calls that are in flight are repeated."""
        for kind in KINDS[:-1]:
            self.met[kind] += self.flying[kind]


def application(calls: Calls, seconds: float) -> App:
    """An app whose handlers make their calls for so long."""
    app = App()

    async def repeated(kind: str, call: Callable[[], Awaitable[Any]]) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await calls.made_as(kind, call())
            await asyncio.sleep(0.01)

    @app.task("leaf", retry=ONCE)
    async def leaf(ctx: Ctx, number: int) -> int:
        await asyncio.sleep(0.02)
        return number

    @app.task("reports", retry=ONCE)
    async def reports(ctx: Ctx) -> None:
        await repeated("progress", lambda: ctx.progress(50, "half way"))

    @app.task("blocks", retry=ONCE)
    def blocks(ctx: Ctx) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            asyncio.run(calls.made_as("sync progress", _in_thread(ctx)))
            time.sleep(0.01)

    @app.task("sums", retry=ONCE)
    async def sums(ctx: Ctx) -> int:
        await repeated("upstreams", ctx.upstreams)
        return sum((await ctx.upstreams()).values())

    @app.task("writes", retry=ONCE)
    async def writes(ctx: Ctx) -> None:
        tx = await calls.made_as("transaction", ctx.transaction())
        await tx.execute("INSERT INTO side VALUES ($1)", ctx.execution_id.uuid)
        await repeated("transaction", lambda: tx.execute("SELECT pg_sleep(0.1)"))

    @app.task("spawns", retry=ONCE)
    async def spawns(ctx: Ctx) -> int:
        for number in range(SPAWNED):  # the same calls every time that it starts
            await calls.made_as("spawn", ctx.spawn(leaf.call(number)))
            await asyncio.sleep(seconds / SPAWNED)
        return sum(await ctx.gather(leaf.many(range(4))))

    @app.task("steps", retry=ONCE)
    async def steps(ctx: Ctx) -> int:
        done = 0
        for number in range(STEPS):  # the same calls every time that it starts
            await ctx.emit("step", b"%d" % number)
            done += await calls.made_as("step", ctx.step(f"step {number}", _one))
            await asyncio.sleep(seconds / STEPS)
        return done

    @app.task("gathers", retry=ONCE)
    async def gathers(ctx: Ctx, depth: int) -> int:
        if depth == 0:
            return sum(await ctx.gather(leaf.many(range(6)), concurrency=2))
        nested = await ctx.gather([gathers.call(depth - 1), gathers.call(depth - 1)])
        return sum(nested) + await ctx.race(leaf.call(1), leaf.call(1))

    return app


async def _one() -> int:
    return 1


async def _in_thread(ctx: Ctx) -> None:
    ctx.sync.progress(50, "half way")


async def submit(client: Client, app: App, pieces: int) -> int:
    """One round of load; how many flows it has."""
    tasks = app.tasks
    for _ in range(pieces):
        await client.submit_many(
            [tasks[kind].call() for kind in ("reports", "blocks", "writes", "spawns", "steps")]
        )
        await client.submit(tasks["gathers"].call(2))
        flow = app.flow("sum")
        firsts = [flow.add(tasks["leaf"].call(n), name=f"n{n}") for n in range(1, 4)]
        flow.add(tasks["sums"].call(), name="sum").after(*firsts)
        await client.start(flow)
    return pieces


async def play(server: Server, size: Size, chance: random.Random) -> tuple[Calls, int]:
    """Rounds of load; in each, Postgres goes away for a second, and for three TTL."""
    calls, flows = Calls(), 0
    app = application(calls, seconds=1.0)

    async def working() -> bool:
        return bool(calls.flying["transaction"]) and all(calls.made[kind] for kind in KINDS)

    async def outage(seconds: float) -> None:
        """Postgres goes away while every kind of call is made; then everything ends."""
        nonlocal flows
        async with await Client.connect(server.dsn, pool_size=2) as client:
            flows += await submit(client, app, size.pieces)
        calls.made.clear()
        await eventually(working, within=30)
        strike = chance.choice((server.crash, server.restart))
        calls.note_strike()
        away = asyncio.create_task(strike(seconds))
        await asyncio.sleep(0.15)
        calls.note_outage()
        await away
        await _all_ended(server.dsn)

    # Leases outlast the short outage: a failure that it caused would be recorded.
    for seconds, ttl in ((BRIEFLY, LASTING), (3 * size.ttl, size.ttl)):
        async with contextlib.AsyncExitStack() as stack:
            for number in range(WORKERS):
                worker = app.worker(
                    dsn=server.dsn, lease_ttl=ttl, worker_instance_id=f"w{number}-{ttl:g}"
                )
                await stack.enter_async_context(worker)
            for _ in range(size.rounds):
                await outage(seconds)
    return calls, flows


async def _all_ended(dsn: str) -> None:
    db = await asyncpg.connect(dsn)

    async def none_goes_on() -> bool:
        ended = await db.fetchrow(_ENDED)
        return ended is not None and ended["going"] == 0

    try:
        await eventually(none_goes_on, within=60)
    finally:
        await db.close()


async def _run(server: Server, size: Size, chance: random.Random) -> list[Figure]:
    await server.start()
    await migrate(server.dsn)
    db = await asyncpg.connect(server.dsn)
    await db.execute("CREATE TABLE side (execution_id uuid NOT NULL)")
    await db.close()
    calls, flows = await play(server, size, chance)
    db = await asyncpg.connect(server.dsn)
    try:
        return await _figures(db, calls, flows, size)
    finally:
        await db.close()


async def _figures(
    db: asyncpg.Connection[Any], calls: Calls, flows: int, size: Size
) -> list[Figure]:
    ended = await db.fetchrow(_ENDED)
    assert ended is not None
    twice = await db.fetchval(_TWICE)
    [(rows, distinct)] = await db.fetch("SELECT count(*), count(DISTINCT execution_id) FROM side")
    writers = 2 * size.rounds * size.pieces
    done = await db.fetchval(
        "SELECT count(*) FROM ff.execution e JOIN ff.route r USING (route_id)"
        " WHERE r.execution_kind = 'sums' AND e.public_state = 'completed'"
    )
    met = ", ".join(f"{calls.met[kind]} {kind}" for kind in KINDS)
    return [
        Figure(
            "G19",
            f"executions that failed, completed and going on after {2 * size.rounds} outages of "
            f"1 s and of {3 * size.ttl:g} s (3 TTL), no retries allowed",
            f"{ended['failed']}, {ended['completed']}, {ended['going']}"
            + (f" ({ended['reasons']})" if ended["reasons"] else ""),
            "0, all, 0",
            held=ended["failed"] == 0 and ended["going"] == 0,
        ),
        Figure(
            "G19",
            "flows that ended as they should",
            f"{done} of {flows}",
            f"{flows}",
            held=done == flows,
        ),
        Figure(
            "G19",
            "calls in flight while Postgres was away",
            met,
            "some of each kind",
            held=all(calls.met[kind] for kind in KINDS),
        ),
        Figure("G2", "executions with two ends", f"{twice}", "0", held=twice == 0),
        Figure(
            "G4",
            "rows of handlers' transactions; distinct",
            f"{rows}; {distinct}; released at most {ended['releases']} times",
            f"{writers}; {writers}",
            held=rows == distinct == writers,
        ),
    ]


def run(arena: Arena, size: Size) -> Sequence[Figure]:
    with Server.running() as server:
        return asyncio.run(_run(server, size, arena.chance("restart")))


RESTART: Final = Proof(
    "restart",
    quick=lambda arena: run(arena, QUICK),
    full=lambda arena: run(arena, FULL),
    claims=("G2", "G4", "G19"),
    timed=True,
)
