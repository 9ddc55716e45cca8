"""`cost`: what one execution costs the server, in CPU, WAL and bytes."""

import argparse
import inspect
from pathlib import Path
from typing import Any, Final

import asyncpg
import psutil
from common import Adapter
from engine_calls import CLAIMED, CREATED, TTL, claimant, completed, executions
from flowfabric_app import connected
from metering import Figures

from flowfabric import Engine

STEPS: Final = ("create", "claim", "complete")

FRESH: Final[dict[str, Any]] = (
    {"fresh": True} if "fresh" in inspect.signature(Engine.create_execution).parameters else {}
)
"""As the client submits: its ids are new. A base may not make the difference."""

BACKENDS: Final = """
SELECT pid FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend'
   AND pid <> pg_backend_pid()
"""

WAL_POSITION: Final = "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8"

BYTES: Final = """
SELECT sum(pg_table_size(c.oid))::float8, sum(pg_indexes_size(c.oid))::float8
  FROM pg_class c WHERE c.relnamespace = 'ff'::regnamespace AND c.relkind = 'r'
"""


class Server:
    """What the server has spent, read on a connection of its own."""

    def __init__(self, conn: "asyncpg.Connection[asyncpg.Record]", backends: list[int]) -> None:
        self._conn = conn
        self._backends = backends
        self.cpu: dict[str, float] = dict.fromkeys(STEPS, 0.0)
        self.wal: dict[str, float] = dict.fromkeys(STEPS, 0.0)
        self._before = (0.0, 0.0)

    async def begin(self) -> None:
        """A call is about to be made."""
        self._before = await self._spent()

    async def end(self, step: str) -> None:
        """The call was one of `step`."""
        cpu, wal = await self._spent()
        self.cpu[step] += cpu - self._before[0]
        self.wal[step] += wal - self._before[1]

    async def _spent(self) -> tuple[float, float]:
        wal = await self._conn.fetchval(WAL_POSITION)
        return sum(map(cpu_seconds, self._backends)), wal


async def cost(_: Adapter, options: argparse.Namespace) -> Figures:
    """Create `n` by 1,000 a call, then claim and complete them by 200, on one connection."""
    watcher = await asyncpg.connect(options.dsn)
    async with connected(options.dsn) as engine:
        await _run(engine, Server(watcher, []), 2 * CREATED)  # to warm up: plans, catalogue
        server = Server(watcher, [row["pid"] for row in await watcher.fetch(BACKENDS)])
        heap, indexes = await watcher.fetchrow(BYTES) or (0.0, 0.0)
        await _run(engine, server, options.n)
        heap_after, indexes_after = await watcher.fetchrow(BYTES) or (0.0, 0.0)
    await watcher.close()
    n = options.n
    figures = {
        "cpu": 1e6 * sum(server.cpu.values()) / n,
        "wal": sum(server.wal.values()) / 1000 / n,
        "heap": (heap_after - heap) / n,
        "indexes": (indexes_after - indexes) / n,
    }
    for step in STEPS:
        figures[f"cpu_{step}"] = 1e6 * server.cpu[step] / n
        figures[f"wal_{step}"] = server.wal[step] / 1000 / n
    return figures


async def _run(engine: Engine, server: Server, n: int) -> None:
    for _ in range(0, n, CREATED):
        batch = executions(CREATED)
        await server.begin()
        await engine.create_execution(batch, **FRESH)
        await server.end("create")
    worker = claimant()
    for _ in range(0, n, CLAIMED):
        await server.begin()
        tasks = await engine.claim(worker, ttl=TTL, limit=CLAIMED)
        await server.end("claim")
        await server.begin()
        await completed(engine, tasks)
        await server.end("complete")


def cpu_seconds(pid: int) -> float:
    """Seconds that the process has run: to the nanosecond where the kernel counts them so."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (FileNotFoundError, IndexError):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
