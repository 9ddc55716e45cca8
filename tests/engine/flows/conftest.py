"""After every test of flows, whatever it did, the invariants of flows hold."""

from collections.abc import AsyncGenerator, Generator

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from tests.engine.joins.invariants import broken_invariants

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


@pytest.fixture(autouse=True)
async def sound(request: pytest.FixtureRequest, ff_dsn: str) -> AsyncGenerator[None]:
    """The database of a test that passed is looked at before it is emptied."""
    yield
    if not request.node.stash.get(PASSED, False):
        return
    conn = await connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        assert await broken_invariants(conn) == {}
    finally:
        await conn.close()
