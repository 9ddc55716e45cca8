"""Which leases were ended by a decision elsewhere."""

import asyncio
from collections.abc import Awaitable, Callable

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.find_lost_leases import find_lost_leases
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.lifecycle.revoke import revoke
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.testing import Clock
from tests import given


async def test_a_lost_lease_gets_the_refusal_of_a_renewal_and_a_held_one_none(
    db: Connection, clock: Clock
) -> None:
    held, cancelled, revoked = [await given.claimed(db, ttl=60) for _ in range(3)]
    expired, swept = [await given.claimed(db, ttl=1) for _ in range(2)]
    await cancel_execution(db, cancelled.execution_id, reason="no")
    await revoke(db, [revoked.execution_id])
    await clock.advance(1)
    await expire_leases(db, limit=1)  # the one that was claimed first
    leases = [held, cancelled, revoked, expired, swept]
    before = await given.everything(db)

    found = await find_lost_leases(db, leases)

    assert await given.everything(db) == before
    refused = await renew(db, leases, ttl=60)
    assert [str(each) for each in found] == [str(each) for each in refused]
    assert [each is None for each in found] == [True, False, False, False, False]


async def test_a_lease_that_its_holder_gave_up_is_not_lost(db: Connection) -> None:
    done, retried, later = [await given.claimed(db, policy=given.retrying()) for _ in range(3)]
    await complete(db, [Completion(done)])
    await fail(db, [Failure(lease=retried, reason="boom")])
    await delay(db, [DelayRequest(lease=later, delay=60)])

    assert await find_lost_leases(db, [done, retried, later]) == [None, None, None]


async def test_a_row_that_another_transaction_has_locked_is_read_all_the_same(
    db: Connection, another: Callable[[], Awaitable[Connection]]
) -> None:
    lease, other = await given.claimed(db), await another()

    async with other.transaction():
        await cancel_execution(other, lease.execution_id, reason="not committed yet")
        async with asyncio.timeout(5):
            assert await find_lost_leases(db, [lease]) == [None]
