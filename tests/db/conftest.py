"""A database without the schema, and a listener."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.listen import Listener
from flowfabric.testing import TestServer


@pytest.fixture
async def empty_dsn(ff_server: TestServer) -> AsyncGenerator[str]:
    """A database of this test's own, without the schema."""
    dsn = await ff_server.create_empty()
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
