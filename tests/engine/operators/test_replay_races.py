"""A replay beside what others do to the same execution: always one order or the other."""

import asyncio

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.engine.retention.delete_finished import delete_finished
from flowfabric.engine.retention.trim import Trim
from flowfabric.engine.retention.trim_retention import trim_retention
from flowfabric.errors import ExecutionNotActive, ExecutionNotTerminal, NotFound
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another, actions, execution, waiting

EVERYTHING = Trim(lane_id="default", retention=0)


async def test_of_two_replays_at_once_one_replays(db: Connection, ff_engine: Engine) -> None:
    execution_id = await execution(db, "failed")

    answers = await asyncio.gather(
        *[ff_engine.replay_execution(execution_id) for _ in range(2)], return_exceptions=True
    )

    assert sum(isinstance(answer, ExecutionNotTerminal) for answer in answers) == 1
    assert (await given.row(db, execution_id))["replay_count"] == 1
    assert len(await actions(db, execution_id)) == 1


async def test_a_replay_that_waited_for_a_replay_is_refused(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    execution_id = await execution(db, "failed")
    operator = await another()
    async with operator.transaction():
        await replay_execution(operator, execution_id)
        replaying = await waiting(db, ff_engine.replay_execution(execution_id))

    with pytest.raises(ExecutionNotTerminal):
        await replaying
    assert (await given.row(db, execution_id))["replay_count"] == 1
    assert len(await actions(db, execution_id)) == 1


async def test_what_is_being_replayed_is_not_forgotten(db: Connection, another: Another) -> None:
    execution_id = await execution(db, "failed")
    operator = await another()
    async with operator.transaction():
        await replay_execution(operator, execution_id)
        assert await trim_retention(db, EVERYTHING) == 0

    assert await trim_retention(db, EVERYTHING) == 0
    assert await given.public_state(db, execution_id) == "waiting"


async def test_nor_by_the_sweep(db: Connection, another: Another, clock: Clock) -> None:
    execution_id = await execution(db, "failed")
    await clock.advance(24 * 3600)
    operator = await another()
    async with operator.transaction():
        await replay_execution(operator, execution_id)
        assert await delete_finished(db, limit=10) == 0

    assert await delete_finished(db, limit=10) == 0
    assert await given.public_state(db, execution_id) == "waiting"


async def test_what_was_forgotten_meanwhile_cannot_be_replayed(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    execution_id = await execution(db, "failed")
    sweeper = await another()
    async with sweeper.transaction():
        assert await trim_retention(sweeper, EVERYTHING) == 1
        replaying = await waiting(db, ff_engine.replay_execution(execution_id))

    with pytest.raises(NotFound):
        await replaying
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0
    assert [each.event_type for each in await actions(db)] == ["retention_trimmed"]


async def test_a_completion_told_again_is_refused_as_soon_as_the_replay_is_committed(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease, b"done")])
    operator, holder = await another(), await another()
    async with operator.transaction():
        await replay_execution(operator, lease.execution_id)
        [repeated] = await complete(holder, [Completion(lease, b"")])

    [refused] = await complete(holder, [Completion(lease, b"")])
    assert repeated == Completed(execution_id=lease.execution_id, repeated=True)
    assert isinstance(refused, ExecutionNotActive)
    assert await given.completion_events(db, lease.execution_id) == ["success"]


async def test_a_replay_that_waited_for_a_completion_replays_what_ended(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    lease = await given.claimed(db)
    holder = await another()
    async with holder.transaction():
        [done] = await complete(holder, [Completion(lease, b"done")])
        replaying = await waiting(db, ff_engine.replay_execution(lease.execution_id))

    assert done == Completed(execution_id=lease.execution_id)
    assert (await replaying).public_state == "waiting"
    assert await given.completion_events(db, lease.execution_id) == ["success"]


async def test_a_claim_takes_what_is_replayed_only_when_that_is_committed(
    db: Connection, another: Another
) -> None:
    execution_id = await execution(db, "failed")
    operator = await another()
    async with operator.transaction():
        await replay_execution(operator, execution_id)
        assert await claim(db, given.WORKER, ttl=30) == []

    [task] = await claim(db, given.WORKER, ttl=30)
    assert task.lease.execution_id == execution_id
