"""What a claim costs does not grow with what is queued, delayed, foreign or finished."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.testing import TestServer
from tests.engine.lifecycle.claim_costs import MOST, TEXT, Queue, cost, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.session("prepares statements and sets how its session plans"),
    pytest.mark.usefixtures("new_database"),
]


@pytest.fixture(scope="module")
def dsn(ff_server: TestServer) -> Generator[str]:
    """A database of this module: the rows are many, and emptying it would take as long."""
    with ThreadPoolExecutor(1) as elsewhere:
        made = elsewhere.submit(asyncio.run, ff_server.create()).result()
        try:
            yield made
        finally:
            elsewhere.submit(asyncio.run, ff_server.drop(made)).result()


@pytest.fixture
async def queue(dsn: str) -> AsyncGenerator[Queue]:
    """An empty queue."""
    config = DatabaseConfig(dsn=dsn, statement_timeout=120)
    db = await connect(config, role="tests")
    try:
        await db.execute(
            "TRUNCATE ff.exec_core, ff.exec_body, ff.ready, ff.lease, ff.route, ff.lease_event"
        )
        yield Queue(db)
    finally:
        await db.close()


async def test_a_claim_costs_the_same_with_a_thousand_and_with_a_hundred_thousand_queued(
    queue: Queue,
) -> None:
    for more in (1000, 9000, 90_000):
        await queue.add(more)
        costs = await cost(queue.db)
        assert max(costs.values()) <= MOST, (more, costs)

    hundred = await cost(queue.db, limit=100)
    assert max(hundred.values()) <= 100 * MOST, hundred


async def test_a_claim_is_cheap_behind_what_only_others_can_run(queue: Queue) -> None:
    await queue.add(100_000, kind="unknown", priority=9000)
    await queue.add(100_000, requires=("gpu",), priority=9000)
    await queue.add(10)

    costs = await cost(queue.db)

    assert max(costs.values()) <= MOST, costs


async def test_a_claim_is_cheap_beside_what_is_delayed_or_finished(queue: Queue) -> None:
    await queue.add(100_000, priority=9000, state="delayed")
    await queue.add(100_000, priority=9000, state="ended")
    await queue.add(10)

    costs = await cost(queue.db)

    assert max(costs.values()) <= MOST, costs


@pytest.mark.parametrize("little", [0, 60, 1000])
async def test_a_claim_that_was_planned_while_there_was_little_is_cheap_when_there_is_much(
    queue: Queue, little: int
) -> None:
    await queue.add(little, state="ended", analyze=little > 0)
    await queue.db.execute(f"PREPARE one_claim AS {TEXT}")
    assert [(await run(queue.db))[0] for _ in range(7)] == [0] * 7

    await queue.add(50_000, analyze=False)

    runs = [await run(queue.db) for _ in range(3)]
    assert [claimed for claimed, _ in runs] == [1, 1, 1]
    assert runs[-1][1] <= MOST, runs
