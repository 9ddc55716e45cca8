"""One database per test process, emptied after each test; a client on it."""

from collections.abc import AsyncGenerator

import pytest

from flowfabric import Client
from tests.engine.conftest import ff_dsn, kept

__all__ = ["ff_dsn", "kept"]


@pytest.fixture
async def client(ff_dsn: str) -> AsyncGenerator[Client]:
    """A client of this test's database."""
    async with await Client.connect(ff_dsn) as connected:
        yield connected
