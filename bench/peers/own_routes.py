"""`routes`: a claim of 100 when the queued executions have many routes, against one route."""

import argparse
import statistics
import time
from typing import Final

from common import Adapter
from engine_calls import TTL, claimant, completed, created
from flowfabric_app import connected
from metering import Figures

LIMIT: Final = 100
WARM_UP: Final = 8


async def routes(_: Adapter, options: argparse.Namespace) -> Figures:
    """Two lanes of `n` queued, one with one kind and one with `routes` kinds, claimed in turns."""
    lanes = {"one": ("noop",), "many": tuple(f"noop-{i}" for i in range(options.routes))}
    took: dict[str, list[float]] = {lane: [] for lane in lanes}
    async with connected(options.dsn) as engine:
        for lane, kinds in lanes.items():
            await created(engine, options.n, lane=lane, kinds=kinds)
        async with engine.pool.connection() as conn:
            await conn.execute("ANALYZE")
        workers = {lane: claimant(lane=lane, kinds=kinds) for lane, kinds in lanes.items()}
        for number in range(WARM_UP + options.repeats):
            for lane, worker in workers.items():
                began = time.perf_counter()
                tasks = await engine.claim(worker, ttl=TTL, limit=LIMIT)
                if number >= WARM_UP:
                    took[lane].append(1000 * (time.perf_counter() - began))
                if len(tasks) != LIMIT:
                    raise RuntimeError(f"a claim of {LIMIT} got {len(tasks)}")
                await completed(engine, tasks)
    one, many = (statistics.median(took[lane]) for lane in lanes)
    return {"ratio": many / one, "one": one, "many": many}
