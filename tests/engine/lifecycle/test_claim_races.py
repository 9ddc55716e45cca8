"""A claim whose execution becomes claimable after its statement has begun."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import Claimed, claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]


async def delayed(db: Connection, clock: Clock) -> ExecutionId:
    execution_id = await given.created(db, delay=4)
    await clock.advance(5)
    return execution_id


async def completed(db: Connection, clock: Clock) -> ExecutionId:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease)])
    return lease.execution_id


async def cancelled(db: Connection, clock: Clock) -> ExecutionId:
    execution_id = await given.created(db)
    await cancel_execution(db, execution_id, reason="test")
    return execution_id


@pytest.mark.parametrize("stood", [delayed, completed, cancelled])
async def test_it_is_left_for_the_next_claim_and_claimed_as_it_stands_by_then(
    db: Connection,
    another: Another,
    clock: Clock,
    stood: Callable[[Connection, Clock], Awaitable[ExecutionId]],
) -> None:
    execution_id = await stood(db, clock)
    worker = await another()

    async with db.transaction():
        # The claim has begun, and what it sees was fixed; now it asks which lanes are open.
        await db.execute("LOCK TABLE ff.lane_registry IN ACCESS EXCLUSIVE MODE")
        call: asyncio.Task[list[Claimed]] = await given.blocked(
            db, worker, claim(worker, given.WORKER, ttl=30)
        )
        if stood is delayed:
            assert await promote_due(db, 10) == 1
        else:
            await replay_execution(db, execution_id)
    assert await call == []

    [task] = await claim(worker, given.WORKER, ttl=30)
    assert task.lease.execution_id == execution_id
    stored = await given.row(db, execution_id)
    assert stored["public_state"] == "active"
    assert (stored["terminal_outcome"], stored["delay_until_ms"]) == ("none", None)
    assert stored["lease_epoch"] == task.lease.lease_epoch
