"""These tests look at connections and statements, not at rows: they share one database."""

import asyncio
from collections.abc import AsyncGenerator, Generator

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.listen import Listener
from flowfabric.db.pool import connect
from flowfabric.testing import TestServer

EMPTY_EVERYTHING = """
DO $$
DECLARE filled text;
BEGIN
    SELECT string_agg(format('ff.%I', tablename), ', ') INTO filled FROM pg_tables
     WHERE schemaname = 'ff' AND tablename NOT LIKE '%annotation';
    EXECUTE 'TRUNCATE ' || filled;
END
$$
"""


@pytest.fixture(scope="session")
def shared_dsn(ff_server: TestServer) -> Generator[str]:
    dsn = asyncio.run(ff_server.create())
    yield dsn
    asyncio.run(ff_server.drop(dsn))


@pytest.fixture
async def ff_dsn(shared_dsn: str) -> str:
    """The shared database, migrated and without rows."""
    conn = await connect(DatabaseConfig(dsn=shared_dsn), role="cleaner")
    try:
        await conn.execute(EMPTY_EVERYTHING)
    finally:
        await conn.close()
    return shared_dsn


@pytest.fixture
async def empty_dsn(ff_server: TestServer) -> AsyncGenerator[str]:
    """A database of this test's own, without the schema."""
    dsn = await ff_server.create_empty()
    yield dsn
    await ff_server.drop(dsn)


@pytest.fixture
async def own_dsn(ff_server: TestServer) -> AsyncGenerator[str]:
    """A migrated database of this test's own."""
    dsn = await ff_server.create()
    yield dsn
    await ff_server.drop(dsn)


@pytest.fixture
async def listener(ff_dsn: str) -> AsyncGenerator[Listener]:
    """A listener that listens."""
    listener = Listener(DatabaseConfig(dsn=ff_dsn))
    listener.start()
    async with asyncio.timeout(10):
        await listener.connected.wait()
    try:
        yield listener
    finally:
        await listener.close()
