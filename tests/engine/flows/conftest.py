"""After every test of flows, whatever it did, the invariants of flows hold."""

from collections.abc import AsyncGenerator

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from tests.engine.flows.invariants import broken_invariants


@pytest.fixture(autouse=True)
async def sound(ff_dsn: str) -> AsyncGenerator[None]:
    """The test's database is looked at before it is emptied."""
    yield
    conn = await connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        assert await broken_invariants(conn) == {}
    finally:
        await conn.close()
