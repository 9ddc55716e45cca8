"""Fixtures of our own tests: the plugin's, and a bare connection; what tests leave behind."""

import gc
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.testing import Clock


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
async def clock(ff_clock: Clock) -> Clock:
    """The database's clock, in the hand of the test."""
    return ff_clock
