"""The pytest plugin: `ff_dsn`, `ff_engine`, `ff_clock`; a database of its own for every test."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flowfabric.engine.facade import Engine
    from flowfabric.testing.clock import Clock
    from flowfabric.testing.databases import TestServer


@pytest.fixture(scope="session")
def ff_server() -> Generator[TestServer]:
    """The server of this session; parallel test processes share it."""
    from flowfabric.testing.databases import TestServer

    server = TestServer.start(shared_as=os.environ.get("PYTEST_XDIST_TESTRUNUID"))
    try:
        yield server
    finally:
        asyncio.run(server.drop_template())
        server.stop()


@pytest.fixture
async def ff_dsn(ff_server: TestServer) -> AsyncGenerator[str]:
    """A migrated database that only this test uses."""
    dsn = await ff_server.create()
    try:
        yield dsn
    finally:
        await ff_server.drop(dsn)


@pytest.fixture
async def ff_engine(ff_dsn: str) -> AsyncGenerator[Engine]:
    """The engine on this test's database."""
    from flowfabric.config import DatabaseConfig
    from flowfabric.engine.facade import Engine

    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture
async def ff_clock(ff_dsn: str) -> AsyncGenerator[Clock]:
    """The clock of this test's database, standing still until the test moves it."""
    from flowfabric.config import DatabaseConfig
    from flowfabric.db.pool import connect
    from flowfabric.testing.clock import Clock

    conn = await connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        yield await Clock.install(conn)
    finally:
        await conn.close()
