"""What viewers cost the engine, and what a drain costs the pages."""

import asyncio
import json
import time
from statistics import median
from typing import Final

import httpx

from bench.adapter import call
from bench.dashboard.result import Line, percentile
from bench.dashboard.served import served
from bench.dashboard.viewers import VIEWERS, looking
from bench.postgres import Cluster
from bench.systems import OURS, SYSTEMS

TOPICS: Final = "t=overview&t=list&t=lanes"
ASKED: Final = ("/", "/executions", "/executions?state=waiting", "/lanes")
FILLED: Final = "dashboard_queue"


async def drain(cluster: Cluster, *, queued: int, pairs: int) -> list[Line]:
    """The drain rate with 200 viewers as a share of that without, in turns; pages meanwhile."""
    dsn = await cluster.create(FILLED)
    await call(SYSTEMS[OURS], "setup", "--dsn", dsn, timeout=60)
    await call(SYSTEMS[OURS], "fill", "--dsn", dsn, "--n", str(queued), timeout=240)
    await cluster.settle(FILLED)
    ratios: list[float] = []
    took: list[float] = []
    for number in range(pairs):
        rates: dict[bool, float] = {}
        for watched in (True, False) if number % 2 else (False, True):
            rates[watched] = await _rate(cluster, queued, VIEWERS if watched else 0, [])
        ratios.append(rates[True] / rates[False])
        await _rate(cluster, queued, 1, took)
    return [
        Line(
            group="while a worker drains",
            what=f"drain rate with {VIEWERS} viewers, of that without",
            value=median(ratios),
            unit="",
            bar=0.95,
            least=True,
        ),
        Line(
            group="while a worker drains",
            what="pages, p95",
            value=percentile(took, 95),
            unit="ms",
            bar=300,
        ),
    ]


async def _rate(cluster: Cluster, queued: int, viewers: int, took: list[float]) -> float:
    """Completions a second; with one viewer, pages are asked for meanwhile."""
    dsn = await cluster.create("dashboard_drain", template=FILLED)
    await cluster.checkpoint()
    async with served(dsn) as server, looking(server, viewers, TOPICS):
        asking = asyncio.create_task(_ask(server.base, took)) if viewers == 1 else None
        words = ("drain", "--dsn", dsn, "--n", str(queued))
        figures = json.loads((await call(SYSTEMS[OURS], *words, timeout=120))[-1])
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
    await cluster.drop("dashboard_drain")
    return figures["rate"]


async def _ask(base: str, took: list[float]) -> None:
    async with httpx.AsyncClient(timeout=30) as client:
        while True:
            for path in ASKED:
                began = time.perf_counter()
                await client.get(base + path)
                took.append(1000 * (time.perf_counter() - began))
