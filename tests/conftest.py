"""Fixtures of our own tests: the plugin's, and a bare connection; what tests leave behind."""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from urllib.parse import urlsplit

import pytest

from flowfabric.config import DATABASE_POOLER, DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.testing import Clock, TestServer
from tests import pgbouncer

THROUGH = "--through-pgbouncer"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        THROUGH,
        action="store_true",
        help="every connection to a test's database goes through a PgBouncer in transaction mode; "
        "tests marked `session` are deselected",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(THROUGH):
        if pgbouncer.installed() is None:
            raise pytest.UsageError(f"{THROUGH}: pgbouncer is not installed")
        os.environ[DATABASE_POOLER] = "1"
        pgbouncer.name_connections()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Behind a pooler no test can run that is about a session."""
    if config.getoption(THROUGH):
        sessions = [item for item in items if item.get_closest_marker("session") is not None]
        config.hook.pytest_deselected(items=sessions)
        items[:] = [item for item in items if item not in sessions]


@pytest.fixture(scope="session")
def ff_server(pytestconfig: pytest.Config) -> Generator[TestServer]:
    """As that of the plugin, or one whose databases are reached through PgBouncer."""
    kind = pgbouncer.PooledServer if pytestconfig.getoption(THROUGH) else TestServer
    server = kind.start(shared_as=os.environ.get("PYTEST_XDIST_TESTRUNUID"))
    try:
        yield server
    finally:
        asyncio.run(server.drop_template())
        server.stop()


def pytest_collection_finish() -> None:
    """What is there before the first test is none of the garbage that is looked for after each."""
    gc.collect()
    gc.freeze()


class Overheard(logging.Handler):
    """What a logger was told, as text."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture(autouse=True)
def event_loop_errors() -> Generator[list[str]]:
    """A test fails for what it leaves open, unawaited or unheard, and not the one after it.

    What is left open warns when it is collected. asyncio only logs a task that is destroyed while
    it runs, or an exception that nobody retrieved; a test that provokes one empties the list.
    """
    overheard, logger = Overheard(), logging.getLogger("asyncio")
    logger.addHandler(overheard)
    try:
        yield overheard.texts
        gc.collect()
    finally:
        logger.removeHandler(overheard)
    assert overheard.texts == []


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
async def direct(
    ff_server: TestServer, ff_dsn: str
) -> AsyncGenerator[Callable[[], Awaitable[Connection]]]:
    """Opens connections to this test's own database that no pooler shares: to LISTEN on."""
    dsn = ff_server.dsn_of(urlsplit(ff_dsn).path.removeprefix("/"))
    opened: list[Connection] = []

    async def one() -> Connection:
        opened.append(await connect(DatabaseConfig(dsn=dsn, pooler=False), role="tests"))
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
