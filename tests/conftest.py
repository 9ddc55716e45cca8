"""Fixtures of our own tests: the plugin's, and a bare connection."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.testing import Clock


@pytest.fixture
async def db(ff_dsn: str) -> AsyncGenerator[Connection]:
    """A connection to this test's own database."""
    conn = await connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        yield conn
    finally:
        await conn.close()


@pytest.fixture
async def another(ff_dsn: str) -> AsyncGenerator[Callable[[], Awaitable[Connection]]]:
    """Opens further connections to this test's own database."""
    opened: list[Connection] = []

    async def one() -> Connection:
        opened.append(await connect(DatabaseConfig(dsn=ff_dsn), role="tests"))
        return opened[-1]

    try:
        yield one
    finally:
        for conn in opened:
            await conn.close()


@pytest.fixture
async def clock(ff_clock: Clock) -> Clock:
    """The database's clock, in the hand of the test."""
    return ff_clock
