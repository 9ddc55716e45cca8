"""`reads`: searches, counts, lists and histories in a database of many executions."""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg
from common import Adapter, gathered
from engine_calls import TTL, claimant, claimed, completed, created
from flowfabric_app import NAMESPACE, application, chain, connected
from metering import Figures, Meter, percentile

from flowfabric import Client, Engine, ExecutionId, PublicState
from flowfabric.engine.executions.search_executions import Search

LANES: Final = 10
CHUNK: Final = 1_000
COMPLETED: Final = 600
ACTIVE: Final = 100
EXECUTIONS_PER_FLOW: Final = 500
LONG_HISTORY: Final = 300
HISTORY_LANE: Final = "history"
PAGE: Final = 50
DEEP_PAGES: Final = 20
WALK_SECONDS: Final = 20.0
COUNTED: Final = 3
READ_SECONDS: Final = 15.0

BUFFERS: Final = "SELECT blks_hit + blks_read FROM pg_stat_database WHERE datname = $1"

Read = Callable[[], Awaitable[Any]]


async def fill_reads(_: Adapter, options: argparse.Namespace) -> Figures:
    """`n` executions in ten lanes: of each thousand 600 completed, the rest waiting.

    The oldest hundred are active; besides there are flows of two members, one for every 500
    executions, and an execution with a long history.
    """
    async with connected(options.dsn, connections=4) as engine:
        await created(engine, ACTIVE, lane=_lane(0))
        await claimed(engine, ACTIVE, lane=_lane(0))
        numbers = iter(range(options.n // CHUNK))

        async def filler() -> None:
            for number in numbers:
                lane = _lane(number % LANES)
                await created(engine, COMPLETED, lane=lane)
                await completed(engine, await claimed(engine, COMPLETED, lane=lane))
                await created(engine, CHUNK - COMPLETED, lane=lane)

        await asyncio.gather(filler(), filler(), filler())
        await _long_history(engine)
    bench = application(Meter(0))
    async with await Client.connect(options.dsn, namespace=NAMESPACE) as client:

        async def start(i: int, at: float) -> object:
            return await client.start(chain(bench, 2))

        await gathered(start, options.n // EXECUTIONS_PER_FLOW, 32)
    return {}


async def _long_history(engine: Engine) -> None:
    """One execution that was claimed and released again and again."""
    await created(engine, 1, lane=HISTORY_LANE)
    for _ in range(LONG_HISTORY):
        [task] = await engine.claim(claimant(lane=HISTORY_LANE), ttl=TTL, limit=1)
        await engine.release([task.lease])


async def reads(_: Adapter, options: argparse.Namespace) -> Figures:
    """Each read `repeats` times: p95 in ms, and the buffers of one call; then the worst of all."""
    figures: Figures = {}
    async with connected(options.dsn) as engine:
        buffers = await Buffers.watch(engine, options.dsn)
        for name, read in (await _reads(engine)).items():
            figures[f"{name}_p95"] = await _p95(read, options.repeats)
            figures[f"{name}_buffers"] = await buffers.of(read)
        await buffers.close()
    for figure in ("p95", "buffers"):
        figures[figure] = max(v for name, v in figures.items() if name.endswith(f"_{figure}"))
    return figures


async def _reads(engine: Engine) -> dict[str, Read]:
    """The reads by name, as bench/scenarios/growth.py lists them."""
    ordinary = (await engine.search_executions(Search(), limit=PAGE)).executions[0].execution_id
    long = Search(lane_id=HISTORY_LANE)
    longest = (await engine.search_executions(long, limit=1)).executions[0].execution_id
    deep = await _deep_cursor(engine)

    def search(search: Search, cursor: str | None = None) -> Read:
        return lambda: engine.search_executions(search, cursor=cursor, limit=PAGE)

    def history(execution_id: ExecutionId) -> Read:
        return lambda: engine.read_history(execution_id)

    return {
        "search_waiting": search(Search(public_state=PublicState.WAITING)),
        "search_active": search(Search(public_state=PublicState.ACTIVE)),
        "search_completed": search(Search(public_state=PublicState.COMPLETED)),
        "search_lane": search(Search(lane_id=_lane(3))),
        "search_deep": search(Search(), deep),
        "count_by_lane": engine.count_by_lane,
        "list_flows": lambda: engine.list_flows(limit=PAGE),
        "read_history": history(ordinary),
        "read_long_history": history(longest),
    }


async def _deep_cursor(engine: Engine) -> str | None:
    """The cursor after 20 pages of 1,000, or after as many as some seconds allow."""
    cursor: str | None = None
    deadline = time.monotonic() + WALK_SECONDS
    for _ in range(DEEP_PAGES):
        page = await engine.search_executions(Search(), cursor=cursor, limit=1_000)
        if page.next_cursor is None or time.monotonic() > deadline:
            break
        cursor = page.next_cursor
    return cursor


async def _p95(read: Read, repeats: int) -> float:
    """The p95 in ms after a call that warms up; a slow read is repeated less often."""
    await read()
    took: list[float] = []
    deadline = time.monotonic() + READ_SECONDS
    while len(took) < repeats and time.monotonic() < deadline:
        began = time.perf_counter()
        await read()
        took.append(1000 * (time.perf_counter() - began))
    return percentile(sorted(took), 95)


class Buffers:
    """Counts the buffers that a call touches, by the statistics of the database.

    The counters are read from another database, so that reading them is not counted.
    """

    def __init__(
        self, engine: Engine, conn: "asyncpg.Connection[asyncpg.Record]", database: str
    ) -> None:
        self._engine = engine
        self._conn = conn
        self._database = database

    @classmethod
    async def watch(cls, engine: Engine, dsn: str) -> "Buffers":
        """A counter for the database of `engine`."""
        conn = await asyncpg.connect(dsn, database="postgres")
        return cls(engine, conn, urlsplit(dsn).path.lstrip("/"))

    async def of(self, read: Read) -> float:
        """The median of some calls, less what the counting itself touches."""
        touched = [await self._touched(read) for _ in range(COUNTED)]
        nothing = [await self._touched(_nothing) for _ in range(COUNTED)]
        return max(0.0, statistics.median(touched) - statistics.median(nothing))

    async def close(self) -> None:
        await self._conn.close()

    async def _touched(self, read: Read) -> float:
        before = await self._count()
        await read()
        return await self._count() - before

    async def _count(self) -> float:
        async with self._engine.pool.connection() as conn:
            await conn.execute("SELECT pg_stat_force_next_flush()")
        return await self._conn.fetchval(BUFFERS, self._database)


async def _nothing() -> None:
    pass


def _lane(number: int) -> str:
    return f"lane-{number}"
