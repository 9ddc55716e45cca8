"""Two hundred viewers at the cost of one: statements, CPU, memory, and how late they hear."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from bench.dashboard.result import Line, percentile
from bench.dashboard.served import Served
from bench.flow_graphs import Hand
from flowfabric import Engine, ExecutionId
from flowfabric.engine.lifecycle.create_execution import NewExecution

VIEWERS: Final = 200
LANE: Final = "viewed"
REPORTED_WITHIN: Final = 11.0
"""Seconds after which Postgres has counted the transactions of connections that are idle."""
TRANSACTIONS: Final = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"


class Viewer:
    """A page that is open: the events that it hears, and when."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.heard: list[tuple[float, bytes]] = []
        self.task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while line := await self._reader.readline():
            if line.startswith(b"data: "):
                self.heard.append((time.monotonic(), line))

    async def close(self) -> None:
        self.task.cancel()
        self._writer.close()


@asynccontextmanager
async def looking(server: Served, count: int, topics: str) -> AsyncGenerator[list[Viewer]]:
    """So many streams that are open at once."""
    address = urlsplit(server.base)
    viewers: list[Viewer] = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(
                f"GET {address.path}/live?{topics} HTTP/1.1\r\nHost: {address.netloc}\r\n"
                "Accept: text/event-stream\r\n\r\n".encode()
            )
            viewers.append(Viewer(reader, writer))
        await asyncio.sleep(1)
        yield viewers
    finally:
        for viewer in viewers:
            await viewer.close()


async def viewers(server: Served, engine: Engine, dsn: str, *, seconds: float) -> list[Line]:
    """What one viewer costs, what 200 cost, and how late they hear of a change."""
    topics = "t=overview&t=list&t=lanes"
    empty = server.memory()
    await asyncio.sleep(REPORTED_WITHIN)
    async with looking(server, 1, topics):
        one, _ = await _cost(server, dsn, seconds)
    async with looking(server, VIEWERS, topics):
        many, cpu = await _cost(server, dsn, seconds)
        held = (server.memory() - empty) / VIEWERS
    late = await _late(server, engine)
    group = f"{VIEWERS} viewers"
    return [
        Line(group=group, what="transactions/s more than one", value=many - one, unit="", bar=1),
        Line(group=group, what="CPU of a core", value=100 * cpu, unit="%", bar=15),
        Line(group=group, what="memory each", value=held, unit="KB", bar=64),
        Line(group=group, what="event to browser, p95", value=late, unit="ms", bar=750),
    ]


async def _cost(server: Served, dsn: str, seconds: float) -> tuple[float, float]:
    """Transactions of the database and CPU of the server, each a second."""
    conn = await asyncpg.connect(dsn, database="postgres")
    try:
        name = urlsplit(dsn).path.lstrip("/")
        before, cpu = await conn.fetchval(TRANSACTIONS, name), server.cpu()
        began = time.monotonic()
        await asyncio.sleep(seconds)
        took = time.monotonic() - began
        after = await conn.fetchval(TRANSACTIONS, name)
        return (after - before) / took, (server.cpu() - cpu) / took
    finally:
        await conn.close()


async def _late(server: Served, engine: Engine) -> float:
    """The p95 of the time from a completion to the event, over all viewers of that execution."""
    late: list[float] = []
    hand = Hand(engine, LANE)
    for _ in range(5):
        one = ExecutionId.mint()
        new = NewExecution(execution_id=one, execution_kind="seen", lane_id=LANE)
        await engine.create_execution([new])
        await hand.claim(1)
        topic = f"t=x.{one.partition_key}.{one.uuid}&t=x.{one.partition_key}.{uuid4()}"
        async with looking(server, VIEWERS // 4, topic) as watching:
            before = [len(each.heard) for each in watching]
            began = time.monotonic()
            await hand.complete()
            await asyncio.sleep(1.2)
            for viewer, known in zip(watching, before, strict=True):
                later = [at for at, _ in viewer.heard[known:] if at >= began]
                late.append(1000 * (later[0] - began) if later else 1200.0)
    return percentile(late, 95)
