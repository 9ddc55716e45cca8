"""What an explanation costs does not grow with what is queued."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection, positional
from flowfabric.engine.executions.explain_execution import AHEAD_AT_MOST, EXPLAIN_EXECUTION
from flowfabric.testing import TestServer
from tests.engine.executions.explained import worker
from tests.engine.lifecycle.claim_costs import Queue
from tests.explained import buffers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.session("prepares statements and sets how its session plans"),
    pytest.mark.usefixtures("new_database"),
]

MANY = 100_000
MOST = 3000
"""Buffers that one explanation may touch, everything included."""

TEXT, NAMES = positional(EXPLAIN_EXECUTION)


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
    """An empty queue, and one worker that could take whatever is in it."""
    config = DatabaseConfig(dsn=dsn, statement_timeout=120)
    db = await connect(config, role="tests")
    try:
        await db.execute(
            "TRUNCATE ff.exec_core, ff.exec_body, ff.ready, ff.lease, ff.route, ff.worker_registry"
        )
        await worker(db, liveness_ttl=3600)
        yield Queue(db)
    finally:
        await db.close()


async def cost(db: Connection, number: int) -> dict[str, int]:
    """Buffers of the explanation of the execution with this number, however it is planned."""
    values = {
        "partition_key": f"{number * 7919 % 256}",
        "execution_id": f"'00000000-0000-7000-8000-{number:012x}'",
        "ahead_at_most": f"{AHEAD_AT_MOST}",
        "namespaces": "NULL",
    }
    costs = {}
    for mode in ("force_custom_plan", "force_generic_plan"):
        await db.execute(f"SET plan_cache_mode = {mode}")
        await db.execute(f"PREPARE one_explanation AS {TEXT}")
        for _ in range(2):
            explained = await db.fetchval(
                "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE one_explanation("
                + ", ".join(values[name] for name in NAMES)
                + ")"
            )
            [whole] = msgspec.json.decode(explained)
            assert whole["Plan"]["Actual Rows"] == 1
            costs[mode] = buffers(whole["Plan"])
        await db.execute("DEALLOCATE one_explanation")
    return costs


@pytest.mark.parametrize("vacuumed", [True, False], ids=["settled", "just queued"])
async def test_an_explanation_is_cheap_wherever_in_a_long_queue_it_stands(
    queue: Queue, vacuumed: bool
) -> None:
    await queue.add(MANY, analyze=vacuumed)

    costs = {number: await cost(queue.db, number) for number in (1, MANY // 2, MANY)}

    assert {number: c for number, c in costs.items() if max(c.values()) > MOST} == {}, costs


async def test_an_explanation_is_cheap_beside_what_is_finished(queue: Queue) -> None:
    await queue.add(MANY, state="ended")
    await queue.add(1)

    costs = {number: await cost(queue.db, number) for number in (1, MANY + 1)}

    assert {number: c for number, c in costs.items() if max(c.values()) > MOST} == {}, costs
