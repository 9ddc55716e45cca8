"""P4: workers and Postgres die, freeze and lose their lines, and nothing else is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tests.proofs.arena import Arena
from tests.proofs.chaos.judge import figures
from tests.proofs.chaos.schedule import Size
from tests.proofs.chaos.server import Server
from tests.proofs.chaos.stage import Stage
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof

QUICK: Final = Size(
    booked=400,
    plain=400,
    fans=10,
    chains=20,
    kills=3,
    freezes=1,
    postgres_kills=1,
    cuts=8,
    ttl=2.0,
    seconds=0.05,
)
FULL: Final = Size(
    booked=10_000,
    plain=7_000,
    fans=150,
    chains=300,
    kills=20,
    freezes=5,
    postgres_kills=5,
    cuts=24,
    ttl=2.0,
    seconds=0.03,
)


def run(arena: Arena, size: Size) -> Sequence[Figure]:
    with Server.running() as server:
        return asyncio.run(_run(arena, server, size))


async def _run(arena: Arena, server: Server, size: Size) -> list[Figure]:
    async with Stage.set_up(server, size, arena.say) as stage:
        await stage.play(arena)
        return await figures(stage)


CHAOS_CRASH: Final = Proof(
    "chaos_crash",
    quick=lambda arena: run(arena, QUICK),
    full=lambda arena: run(arena, FULL),
    claims=("G1", "G2", "G3", "G4", "G5", "G8", "G19"),
    timed=True,
)
