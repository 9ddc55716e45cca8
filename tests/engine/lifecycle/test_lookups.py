"""Queue and leases are looked up by key, also when the last ANALYZE found both of them empty."""

from collections.abc import Sequence
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.lock_executions import lock_and_read, lock_executions
from flowfabric.engine.lifecycle.reprioritise import reprioritise
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId
from flowfabric.states import TerminalOutcome
from tests import given
from tests.engine.lifecycle.fenced import OPERATIONS, Operation

pytestmark = pytest.mark.usefixtures("new_database")

MANY, BATCH = 400, 40
FETCHED = """
SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables
 WHERE relid = $1::text::regclass
"""


@pytest.fixture
async def executions(db: Connection) -> list[ExecutionId]:
    """Many that are queued, in tables that were empty when they were analyzed."""
    await queued(db)
    for lease in await leased(db):
        await OPERATIONS["complete"](db, [lease])
    await db.execute("ANALYZE ff.ready, ff.lease, ff.exec_core")
    return await queued(db)


async def queued(db: Connection) -> list[ExecutionId]:
    answers = await create_execution(db, [given.new() for _ in range(MANY)])
    return [answer.execution_id for answer in answers]


async def leased(db: Connection) -> list[Lease]:
    return [task.lease for task in await claim(db, given.WORKER, ttl=600, limit=MANY)]


async def _terminalize(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    executions = [lease.execution_id for lease in leases]
    await lock_executions(db, executions, with_leases=True)
    return list(await terminalize(db, executions, outcome=TerminalOutcome.CANCELLED))


async def _lock_and_read(db: Connection, leases: Sequence[Lease]) -> list[Any]:
    return [*(await lock_and_read(db, [lease.execution_id for lease in leases])).values()]


BATCHES = {name: op for name, op in OPERATIONS.items() if name != "progress"}
BATCHES |= {"terminalize": _terminalize, "lock_and_read": _lock_and_read}


@pytest.mark.parametrize("operation", BATCHES.values(), ids=BATCHES)
async def test_the_leases_of_a_batch_are_looked_up(
    db: Connection, executions: list[ExecutionId], operation: Operation
) -> None:
    leases = await leased(db)
    assert len(leases) == MANY
    async with db.transaction():
        before = await db.fetchval(FETCHED, "ff.lease")
        await operation(db, leases[:BATCH])
        fetched = await db.fetchval(FETCHED, "ff.lease") - before

    assert fetched <= 4 * BATCH


async def test_the_places_of_a_batch_in_the_queue_are_looked_up(
    db: Connection, executions: list[ExecutionId]
) -> None:
    async with db.transaction():
        before = await db.fetchval(FETCHED, "ff.ready")
        await lock_executions(db, executions[:BATCH])
        await reprioritise(db, executions[:BATCH], priority=7)
        await terminalize(db, executions[:BATCH], outcome=TerminalOutcome.CANCELLED)
        fetched = await db.fetchval(FETCHED, "ff.ready") - before

    assert fetched <= 4 * BATCH


async def test_sweeps_read_the_leases_page_by_page(
    db: Connection, executions: list[ExecutionId]
) -> None:
    """In the order of an index they would fetch the page of each lease anew."""
    assert len(await leased(db)) == MANY
    by_index = (
        "SELECT idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'ff.lease'::regclass"
    )
    async with db.transaction():
        before = await db.fetchval(by_index)
        assert (await expire_leases(db, 100), await expire_attempts(db, 100)) == (0, 0)
        assert await db.fetchval(by_index) == before
