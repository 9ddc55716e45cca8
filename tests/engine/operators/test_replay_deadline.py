"""terminal → runnable: a replay beside the deadline of what is replayed."""

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.expire_executions import expire_executions
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import actions, execution


async def test_a_deadline_that_has_passed_counts_from_now(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, deadline=60)
    await clock.advance(60)
    await expire_executions(db, limit=10)
    await clock.advance(1000)

    await replay_execution(db, execution_id)

    now = await clock.now_ms()
    assert (await given.row(db, execution_id))["deadline_at_ms"] == now + 60_000
    [told] = await actions(db, execution_id)
    assert told.details["old_deadline_at_ms"] == now - 1_000_000
    assert told.details["new_deadline_at_ms"] == now + 60_000
    await clock.advance(59.999)
    assert await expire_executions(db, limit=10) == 0
    await clock.advance(0.001)
    assert await expire_executions(db, limit=10) == 1


async def test_each_further_replay_grants_the_same_time_again(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, deadline=60)
    for _ in range(2):
        await clock.advance(10_000)
        await expire_executions(db, limit=10)
        await replay_execution(db, execution_id)

    left = (await given.row(db, execution_id))["deadline_at_ms"] - await clock.now_ms()

    assert left == 60_000


async def test_a_deadline_that_has_not_passed_stays(db: Connection, clock: Clock) -> None:
    created = await clock.now_ms()
    execution_id = await execution(db, "failed", deadline=60)
    await clock.advance(59.999)

    await replay_execution(db, execution_id)

    assert (await given.row(db, execution_id))["deadline_at_ms"] == created + 60_000
