"""G22: sixty-four operations at once on a pool of two connections."""

from __future__ import annotations

import asyncio
import contextlib
from uuid import UUID

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.worker.renewer import Renewer
from flowfabric.worker.running_attempt import HeldLeases
from flowfabric.worker.settings import WorkerSettings
from flowfabric.worker.threads import HandlerThreads
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.proofs.storm.guest import Board, Guest

CLIENTS = 64
POOL = 2
ALLOWED = POOL + 2
"""The pool, the listener and the renewer."""

FIRST_MEMBERS = 20
LONGEST = 5.0
"""Seconds that the operations of a client may take, for each of them."""
FLOW_ID = UUID("f1000000-0000-4000-8000-000000000003")

CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class Sampler:
    """Counts the server's connections again and again."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self.samples = self.most = 0

    async def run(self) -> None:
        while True:
            self.most = max(self.most, await self._db.fetchval(CONNECTIONS))
            self.samples += 1
            await asyncio.sleep(0.002)


async def crowded(arena: Arena, dsn: str, each: int) -> tuple[Board, Sampler]:
    """Every client does so many operations, all on one engine."""
    board = Board(FLOW_ID)
    config = DatabaseConfig(dsn=dsn, pool_size=POOL)
    settings = WorkerSettings(lease_ttl=1.0)
    db = await connect(DatabaseConfig(dsn=dsn), role="looks on")
    engine = await Engine.connect(config)
    renewer = Renewer(
        config, settings, "w-1", (), HeldLeases(), HandlerThreads(), lambda _held, _why: None
    )
    await renewer.start()
    engine.listener.start()
    guests = [
        Guest(engine, board, arena.chance(f"pool {number}"), number) for number in range(CLIENTS)
    ]
    sampler = Sampler(db)
    sampling = asyncio.create_task(sampler.run())
    try:
        await engine.create_flow(FLOW_ID, flow_kind="crowd")
        for _ in range(FIRST_MEMBERS):
            await guests[0]._add()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST * each):
                await asyncio.gather(*(guest.act(each) for guest in guests))
    finally:
        sampling.cancel()
        await asyncio.wait((sampling,))
        await renewer.stop()
        await engine.close()
        await db.close()
    return board, sampler


def proven(arena: Arena, each: int) -> list[Figure]:
    with arena.database() as dsn:
        board, sampler = asyncio.run(crowded(arena, dsn, each))
    for line in board.raw:
        arena.say(f"pool, seed {arena.seed}: {line}")
    asked = CLIENTS * each
    answered = ", ".join(f"{count} {kind}" for kind, count in sorted(board.answers.items()))
    return [
        Figure(
            "G22",
            f"operations that finish, {CLIENTS} at once on a pool of {POOL}",
            f"{board.asked - board.answers['raw']} of {asked} ({answered})",
            f"{asked}",
            held=board.asked == asked and not board.raw,
        ),
        Figure(
            "G22",
            "most connections at the server meanwhile",
            f"{sampler.most} in {sampler.samples} samples",
            f"{POOL} + listener + renewer",
            held=0 < sampler.most <= ALLOWED and sampler.samples > 10,
        ),
    ]


POOLED = Proof(
    "pool", lambda arena: proven(arena, 6), lambda arena: proven(arena, 60), claims=("G22",)
)
