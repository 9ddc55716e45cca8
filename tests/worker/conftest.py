"""A client on the test's own database."""

from collections.abc import AsyncGenerator

import pytest

from flowfabric import Client


@pytest.fixture
async def client(ff_dsn: str) -> AsyncGenerator[Client]:
    """A client of this test's database."""
    async with await Client.connect(ff_dsn) as connected:
        yield connected


@pytest.fixture(autouse=True)
def _both_ways(way: str) -> None:
    """Every test may run over HTTP as well."""
