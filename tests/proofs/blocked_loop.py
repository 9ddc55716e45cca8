"""G17: handlers that block the event loop or keep the processors busy do not lose their leases."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from flowfabric import Client, Task
from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from tests.proofs.arena import Arena
from tests.proofs.figures import Figure
from tests.proofs.proof import Proof
from tests.proofs.spinning import block, spin
from tests.stories.processes import all_completed, serving, workers, worst_counts
from tests.worker.facts import count, eventually, lease_expired_events

TERMS: Final = 3
"""For how many times the TTL a handler blocks."""
HELD_LONGEST = """
SELECT max(ended - begun) / 1000.0
  FROM (SELECT max(occurred_at_ms) AS ended, min(occurred_at_ms) AS begun
          FROM ff.lease_event GROUP BY execution_id) AS held
"""


async def _block(dsn: str, *, ttl: float, tasks: int, processes: int) -> list[Figure]:
    """As many of either kind, each on a lane and in worker processes of its own."""
    db = await connect(DatabaseConfig(dsn=dsn), role="tests")
    client = await Client.connect(dsn)
    common = {"module": "tests.proofs.spinner", "quiet": True, "lease_ttl": ttl}
    sleepers = [f"sleeper-{number}" for number in range(processes)]
    spinners = [f"spinner-{number}" for number in range((processes + 1) // 2)]
    sleeping = {**common, "lanes": ["sleep"], "concurrency": tasks // len(sleepers)}
    spinning = {**common, "lanes": ["spin"], "concurrency": tasks // len(spinners)}
    try:
        async with (
            workers(dsn, *sleepers, **sleeping),
            workers(dsn, *spinners, **spinning),
        ):
            await serving(db, len(sleepers) + len(spinners))
            await _submit(client, block, "sleep", tasks, TERMS * ttl)
            await _submit(client, spin, "spin", tasks, TERMS * ttl)
            await eventually(lambda: all_completed(db), within=60 + 2 * tasks * TERMS * ttl)
        return await _figures(db, tasks, ttl)
    finally:
        await client.close()
        await db.close()


async def _submit(
    client: Client, task: Task[..., Any], lane: str, number: int, seconds: float
) -> None:
    await client.submit_many([task.call(seconds) for _ in range(number)], lane=lane)


async def _figures(db: Connection, tasks: int, ttl: float) -> list[Figure]:
    done = await count(db, "completed")
    lost = await lease_expired_events(db)
    attempts, retries, reclaims = await worst_counts(db)
    longest = float(await db.fetchval(HELD_LONGEST))
    return [
        Figure(
            "G17",
            f"{tasks} handlers in time.sleep, {tasks} spinning, {TERMS} TTL each: leases lost",
            f"{lost} ({done} of {2 * tasks} completed)",
            "0",
            held=lost == 0 and done == 2 * tasks,
        ),
        Figure(
            "G17",
            f"most attempts, retries and reclaims; held longest, of a TTL of {ttl:g} s",
            f"{attempts}, {retries}, {reclaims}; {longest:.1f} s",
            f"1, 0, 0; at least {TERMS * ttl:g} s",
            held=(attempts, retries, reclaims) == (1, 0, 0) and longest >= TERMS * ttl,
        ),
    ]


def quick(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_block(dsn, ttl=1, tasks=2, processes=2))


def full(arena: Arena) -> list[Figure]:
    with arena.database() as dsn:
        return asyncio.run(_block(dsn, ttl=2, tasks=100, processes=10))


BLOCKED_LOOP: Final = Proof("blocked_loop", quick, full, claims=("G17",), timed=True)
