"""A process that fires schedules, as the sweep does, until none is due: `python -m … DSN BATCH`.

It says a line when it is ready and begins with the line that it reads, so that several begin at
once.
"""

from __future__ import annotations

import asyncio
import sys

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import Pool
from flowfabric.db.transaction import run, transact
from flowfabric.engine.schedules.fire_schedules import fire_schedules, schedules_due

_LOST = 0.01
"""Seconds until a process looks again after another one has fired what it had read."""


async def fire_all(dsn: str, batch: int) -> int:
    """Fire until nothing is due; how many schedules."""
    pool = await Pool.open(DatabaseConfig(dsn=dsn, pool_size=1), role="firing")
    try:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        fired = 0
        while await run(pool, "schedules_due", schedules_due):
            moved = await transact(pool, "fire_schedules", lambda conn: fire_schedules(conn, batch))
            fired += moved
            if not moved:
                await asyncio.sleep(_LOST)
        return fired
    finally:
        await pool.close()


if __name__ == "__main__":
    sys.stdout.write(f"{asyncio.run(fire_all(sys.argv[1], int(sys.argv[2])))}\n")
