"""A replay keeps what is armed in its journal, and nothing is undone twice."""

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.read_compensation import read_compensation
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.ids import ExecutionId, compensation_id
from tests import given
from tests.engine.journal.compensating import arm, calls, compensates, disarm, failed, started
from tests.engine.journal.journals import (
    claimed_again,
    journal,
    recorded,
)


async def test_a_replay_before_it_was_started_leaves_nothing_to_start(db: Connection) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, b'"a"')
    await failed(db, lease)

    async with db.transaction():
        await replay_execution(db, lease.execution_id)

    assert await started(db) == 0
    again = await claimed_again(db, lease.execution_id)
    await failed(db, again)
    assert await started(db) == 1  # what is still in the journal is armed
    assert await calls(db, lease.execution_id) == [b'"a"']
    assert await read_compensation(db, lease.execution_id) == compensation_id(lease.execution_id, 1)


async def test_what_was_made_is_not_made_again_after_a_replay(db: Connection) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, b'"a"', b'"b"')
    await failed(db, lease)
    await started(db)
    first = await read_compensation(db, lease.execution_id)
    async with db.transaction():
        await replay_execution(db, lease.execution_id)
    again = await _claimed(db, lease.execution_id)
    assert await read_compensation(db, lease.execution_id) == first

    await arm(db, again, b'"c"')
    await failed(db, again)
    await started(db)

    assert await calls(db, lease.execution_id) == [b'"c"']


async def test_a_replay_from_the_start_arms_nothing(db: Connection) -> None:
    lease = await given.claimed(db)
    await arm(db, lease, b'"a"')
    await failed(db, lease)

    async with db.transaction():
        await replay_execution(db, lease.execution_id, from_="start")

    assert not await compensates(db, lease.execution_id)
    assert await journal(db, lease.execution_id) == ["0 mark done"]


async def test_a_replay_from_before_the_arming_or_the_disarming_undoes_it(db: Connection) -> None:
    lease = await given.claimed(db)
    await recorded(db, lease, "first")
    await arm(db, lease, b'"a"')
    await recorded(db, lease, "second")
    await disarm(db, lease)
    await failed(db, lease)
    assert not await compensates(db, lease.execution_id)

    async with db.transaction():
        await replay_execution(db, lease.execution_id, from_step="second")

    assert await compensates(db, lease.execution_id)
    again = await claimed_again(db, lease.execution_id)
    await failed(db, again)
    async with db.transaction():
        await replay_execution(db, lease.execution_id, from_step="first")
    assert not await compensates(db, lease.execution_id)
    assert await started(db) == 0


async def _claimed(db: Connection, execution_id: ExecutionId) -> Lease:
    """Worker w-2 holds this execution, whatever else there is to claim."""
    for claimed in await claim(db, given.OTHER, ttl=30, limit=10):
        if claimed.lease.execution_id == execution_id:
            return claimed.lease
    raise AssertionError(execution_id)
