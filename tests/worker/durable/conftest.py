"""A lab of its own for each test."""

from collections.abc import Generator

import pytest

from flowfabric import Client
from flowfabric.db.rows import Connection
from flowfabric.worker.durable.diverged import unless_given
from tests.worker.durable.lab import Lab, Statements


@pytest.fixture
def lab(client: Client, ff_dsn: str, db: Connection) -> Generator[Lab]:
    with unless_given("suspend"):  # as outside of tests
        yield Lab(client, ff_dsn, db)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    return Statements(monkeypatch)


@pytest.fixture
async def seeded(lab: Lab) -> None:
    """Waitpoints can have tokens."""
    await lab.seed_key()
