"""A hub on this test's database, and who may be ended without harm to the test itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.listen import Listener
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.engine.events.subscribe import Hub
from tests.db.facts import disconnected

READER = "reader"
READING = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'flowfabric reader'"
    " AND datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
)


@contextlib.asynccontextmanager
async def opened(dsn: str, *, memory: int = 4096, **settings: Any) -> AsyncIterator[Hub]:
    """A hub of its own, with its own pool and listener."""
    config = DatabaseConfig(dsn=dsn, **settings)
    pool, listener = await Pool.open(config, role=READER), Listener(config)
    hub = Hub(pool, listener, memory=memory)
    try:
        if config.listen and not config.pooler:
            listener.start()
            async with asyncio.timeout(10):
                await listener.connected.wait()
        yield hub
    finally:
        await hub.close()
        await listener.close()
        await pool.close()


@pytest.fixture
async def hub(ff_dsn: str) -> AsyncGenerator[Hub]:
    """A hub whose listener listens, unless there is a pooler: then it polls."""
    async with opened(ff_dsn) as hub:
        yield hub


Provoke = Callable[[], Awaitable[object]]
Cut = Callable[[str, Provoke], Awaitable[None]]


@pytest.fixture
def cut(db: Connection, another: Callable[[], Awaitable[Connection]]) -> Cut:
    """Ends a connection in the middle of the read of a table that somebody was provoked to."""

    async def cut(table: str, provoke: Provoke) -> None:
        holder = await another()
        async with holder.transaction():
            await holder.execute(f"LOCK TABLE ff.{table} IN ACCESS EXCLUSIVE MODE")
            await provoke()
            async with asyncio.timeout(10):
                while (pid := await db.fetchval(READING)) is None:
                    pass
            await disconnected(db, pid)

    return cut
