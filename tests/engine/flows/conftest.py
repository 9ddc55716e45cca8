"""After every test of flows, whatever it did, the invariants of flows hold."""

from collections.abc import AsyncGenerator, Generator

import pytest

from tests.engine.joins.invariants import broken_invariants
from tests.warm_server import WarmServer

PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember which tests have passed."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture
def database(request: pytest.FixtureRequest) -> tuple[WarmServer, str] | None:
    """The server and the database of a test that has one."""
    if "ff_dsn" not in request.fixturenames:
        return None
    return request.getfixturevalue("warm_server"), request.getfixturevalue("ff_dsn")


@pytest.fixture(autouse=True)
async def sound(
    request: pytest.FixtureRequest, database: tuple[WarmServer, str] | None
) -> AsyncGenerator[None]:
    """The database of a test that passed is looked at before it is emptied."""
    yield
    if database is None or not request.node.stash.get(PASSED, False):
        return
    server, dsn = database
    conn = await server.lend_connection(dsn)
    try:
        assert await broken_invariants(conn) == {}
    finally:
        await server.take_connection_back(dsn, conn)
