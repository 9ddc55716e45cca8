"""The pytest plugin: fixtures that give each test a database of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flowfabric.engine.engine import Engine
    from flowfabric.testing.clock import Clock
    from flowfabric.testing.databases import TestServer


try:
    import pytest_asyncio

    fixture = pytest_asyncio.fixture
except ImportError:  # then another plugin runs coroutines
    fixture = pytest.fixture


@pytest.fixture(scope="session")
def ff_server() -> Generator[TestServer]:
    """The Postgres server of this session; parallel test processes share it."""
    from flowfabric.testing.databases import TestServer

    server = TestServer.start(shared_as=os.environ.get("PYTEST_XDIST_TESTRUNUID"))
    try:
        yield server
    finally:
        asyncio.run(server.drop_template())
        server.stop()


@fixture
async def ff_dsn(ff_server: TestServer) -> AsyncGenerator[str]:
    """The DSN of a migrated database without a row; no other test uses it meanwhile.

    A handler that makes other durable calls than before fails its execution.
    """
    from flowfabric.worker.durable.diverged import unless_given

    dsn = await ff_server.lend()
    try:
        with unless_given("fail"):
            yield dsn
    finally:
        await ff_server.take_back(dsn)


@fixture
async def ff_engine(ff_dsn: str) -> AsyncGenerator[Engine]:
    """The engine on this test's database."""
    from flowfabric.config import DatabaseConfig
    from flowfabric.engine.engine import Engine

    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        yield engine
    finally:
        await engine.close()


@fixture
async def ff_sweep(ff_engine: Engine) -> Callable[[], Awaitable[int]]:
    """A function that runs every sweep until no due rows are left; returns how many moved."""
    from flowfabric.reconcile.loop import sweep_all
    from flowfabric.reconcile.sweeps import SWEEPS

    async def sweep() -> int:
        return sum([await sweep_all(ff_engine.pool, one) for one in SWEEPS])

    return sweep


@fixture
async def ff_clock(ff_dsn: str) -> AsyncGenerator[Clock]:
    """The clock of this test's database, stopped; the test moves it."""
    from flowfabric.config import DatabaseConfig
    from flowfabric.db.pool import connect
    from flowfabric.instants import time_stopped
    from flowfabric.testing.clock import Clock

    conn = await connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        with time_stopped():
            yield await Clock.install(conn)
    finally:
        await conn.close()
