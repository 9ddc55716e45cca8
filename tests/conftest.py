"""Fixtures of our own tests: the plugin's, and a bare connection; what tests leave behind."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from urllib.parse import urlsplit

import pytest
from hypothesis import settings

from flowfabric.config import DATABASE_POOLER, DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.instants import time_stopped
from flowfabric.testing import Clock, TestServer
from tests import pgbouncer
from tests.remote import DIRECT, THROUGH_SERVER, Servers, through, ways
from tests.warm_server import WarmServer

THROUGH = "--through-pgbouncer"
WHOLE = "--whole"
LONGEST = (
    "tests/docs/test_types.py",
    "tests/proofs/test_proofs.py",
    "tests/browser/test_wall.py",
)

# An example may take as long as the machine makes it: only tests marked `timing` bound a time.
settings.register_profile("flowfabric", deadline=None)
settings.load_profile("flowfabric")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        THROUGH,
        action="store_true",
        help="every connection to a test's database goes through a PgBouncer in transaction mode; "
        "tests marked `session` are deselected",
    )
    parser.addoption(
        WHOLE,
        action="store_true",
        help="tests that look at a sample, with every value of each axis in it, look at "
        "everything; tests marked `whole` run too",
    )
    parser.addoption(
        THROUGH_SERVER,
        action="store_true",
        help="clients and workers of their tests are connected to a server over the database; "
        "tests marked `direct` are deselected",
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts its background jobs with SIGINT ignored. Processes that tests start would
    # inherit that, and Ctrl-C would not end them.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption(THROUGH):
        if pgbouncer.installed() is None:
            raise pytest.UsageError(f"{THROUGH}: pgbouncer is not installed")
        os.environ[DATABASE_POOLER] = "1"
        pgbouncer.name_connections()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing of what is collected is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest tests begin first, so that no process ends long after the others.

    Behind a pooler no test can run that is about a session, or through a server about one. What
    goes on from where a sample ends is left to `make prove`.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))
    left_out = {
        "session": config.getoption(THROUGH),
        "direct": config.getoption(THROUGH_SERVER),
        "whole": not config.getoption(WHOLE),
    }
    for marker, is_left_out in left_out.items():
        if is_left_out:
            left = [item for item in items if item.get_closest_marker(marker) is not None]
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if item not in left]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Some tests of clients and workers run in both ways: with the database, and over HTTP."""
    if "way" in metafunc.fixturenames:
        module, test = str(metafunc.module and metafunc.module.__name__), metafunc.function.__name__
        found = ways(metafunc.config, module, test)
        if found != [DIRECT]:
            metafunc.parametrize("way", found, indirect=True)


@pytest.fixture(scope="session")
def whole(pytestconfig: pytest.Config) -> bool:
    """Does a test look at everything, as `make prove` asks, instead of a sample?"""
    return bool(pytestconfig.getoption(WHOLE))


@pytest.fixture(scope="session")
def servers() -> Generator[Servers]:
    """Servers for tests that run over HTTP."""
    found = Servers()
    yield found
    found.close()


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Generator[str]:
    """How clients and workers of the test reach the database: `direct`, or by a `server`."""
    wanted: str = getattr(request, "param", DIRECT)
    if wanted == DIRECT:
        yield wanted
        return
    request.getfixturevalue("ff_dsn")  # taken back after the server has stopped
    servers: Servers = request.getfixturevalue("servers")
    with through(servers, request.getfixturevalue("monkeypatch_way")):
        yield wanted


@pytest.fixture
def monkeypatch_way() -> Generator[pytest.MonkeyPatch]:
    """Patches of `way`, apart from those of the test."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="session")
def ff_server(pytestconfig: pytest.Config) -> Generator[TestServer]:
    """As that of the plugin, or one whose databases are reached through PgBouncer.

    Not shared by the processes of a run: events wait for every writer of a server, so a test that
    keeps a transaction open would hold up the readers of another.
    """
    kind = pgbouncer.PooledServer if pytestconfig.getoption(THROUGH) else WarmServer
    server = kind.start()
    try:
        yield server
    finally:
        asyncio.run(server.drop_template())
        server.stop()


class Garbage:
    """Collects what a test left, without looking again at what was there before the test.

    An object that outlives its test is looked at again at every `EVERY`th test and at the end.
    """

    EVERY = 500

    def __init__(self) -> None:
        self._tests = 0

    def collect(self) -> None:
        """After a test: what it made and left is destroyed, and warns if it is not closed."""
        self._tests += 1
        if self._tests % self.EVERY == 0:
            gc.unfreeze()
        self._freeze()

    def collect_all(self) -> None:
        """Everything is looked at, whenever it was made."""
        gc.unfreeze()
        self._freeze()

    def _freeze(self) -> None:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session")
def garbage() -> Generator[Garbage]:
    """What is there before the first test is none of the garbage that is looked for after each."""
    garbage = Garbage()
    garbage.collect_all()
    yield garbage
    garbage.collect_all()


class Overheard(logging.Handler):
    """What a logger was told, as text."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))


@pytest.fixture(scope="session")
async def shared_loop() -> asyncio.AbstractEventLoop:
    """The loop that every test runs on, so that a connection can outlive its test."""
    return asyncio.get_running_loop()


def end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """A test's tasks end with it, as if the loop were its own."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


@pytest.fixture(autouse=True)
def event_loop_errors(
    garbage: Garbage, shared_loop: asyncio.AbstractEventLoop
) -> Generator[list[str]]:
    """A test fails for what it leaves open, unawaited or unheard, and not the one after it.

    What is left open warns when it is collected. asyncio only logs a task that is destroyed while
    it runs, or an exception that nobody retrieved; a test that provokes one empties the list.
    """
    overheard, logger = Overheard(), logging.getLogger("asyncio")
    logger.addHandler(overheard)
    try:
        yield overheard.texts
        end_tasks(shared_loop)
        garbage.collect()
    finally:
        logger.removeHandler(overheard)
    assert overheard.texts == []


@pytest.fixture(scope="session")
async def warm_server(ff_server: WarmServer) -> AsyncGenerator[WarmServer]:
    """The server, to lend connections of; closed on the event loop that opened them."""
    yield ff_server
    await ff_server.close_connections()


@pytest.fixture
async def db(warm_server: WarmServer, ff_dsn: str) -> AsyncGenerator[Connection]:
    """A connection to this test's own database."""
    conn = await warm_server.lend_connection(ff_dsn)
    try:
        yield conn
    finally:
        await warm_server.take_connection_back(ff_dsn, conn)


@pytest.fixture
async def new_database(warm_server: WarmServer) -> None:
    """The database of this test was lent to no other: for tests of plans and of what they cost.

    Deleted rows are read until they are vacuumed, and statistics and plans stay.
    """
    await warm_server.drop_spare()


@pytest.fixture
async def another(
    warm_server: WarmServer, ff_dsn: str
) -> AsyncGenerator[Callable[[], Awaitable[Connection]]]:
    """Opens further connections to this test's own database."""
    opened: list[Connection] = []

    async def one() -> Connection:
        opened.append(await warm_server.lend_connection(ff_dsn))
        return opened[-1]

    try:
        yield one
    finally:
        for conn in opened:
            await warm_server.take_connection_back(ff_dsn, conn)


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
async def ff_clock(warm_server: WarmServer, ff_dsn: str) -> AsyncGenerator[Clock]:
    """As that of the plugin, on a connection that stays open between tests."""
    conn = await warm_server.lend_connection(ff_dsn)
    try:
        with time_stopped():
            yield await Clock.install(conn)
    finally:
        await warm_server.take_connection_back(ff_dsn, conn)


@pytest.fixture
async def clock(ff_clock: Clock) -> Clock:
    """The database's clock, in the hand of the test."""
    return ff_clock
