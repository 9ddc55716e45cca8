"""active → active: a lease is kept."""

from datetime import timedelta

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.errors import LeaseExpired, ValidationError
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.testing import Clock
from tests import given


async def test_a_renewed_lease_runs_for_its_ttl_from_now(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(20)
    before = await given.row(db, lease.execution_id)

    assert await renew(db, [lease], ttl=30) == [None]

    after, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert after == before | {"lease_expires_at_ms": now + 30_000, "last_mutation_at_ms": now}
    assert await given.attempts(db, lease.execution_id) == []
    assert await given.completion_events(db, lease.execution_id) == []


async def test_a_renewal_may_also_shorten_a_lease(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=3600)

    await renew(db, [lease], ttl=timedelta(seconds=5))

    stored = await given.row(db, lease.execution_id)
    assert stored["lease_expires_at_ms"] == await clock.now_ms() + 5000


async def test_a_renewal_is_told_only_when_the_history_is_full(db: Connection) -> None:
    lease = await given.claimed(db)

    await renew(db, [lease], ttl=30)
    assert await given.lease_events(db, lease.execution_id) == [("acquired", None)]
    await renew(db, [lease], ttl=30, record=True)

    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("renewed", None),
    ]
    event = (await given.lease_history(db, lease.execution_id))[-1]
    assert (event["lease_id"], event["lease_epoch"]) == (lease.lease_id, lease.lease_epoch)
    assert (event["attempt_index"], event["worker_instance_id"]) == (0, "w-1")


async def test_an_execution_that_is_renewed_in_time_is_never_swept(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    for _ in range(10):
        await clock.advance(29.999)
        assert await expire_leases(db, limit=10) == 0
        assert await renew(db, [lease], ttl=30) == [None]

    assert await given.public_state(db, lease.execution_id) == "active"


async def test_a_lease_that_ran_out_cannot_be_brought_back(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(30)

    [refusal] = await renew(db, [lease], ttl=30)

    assert isinstance(refusal, LeaseExpired)
    assert await expire_leases(db, limit=10) == 1


async def test_a_renewal_does_not_move_the_attempts_timeout(db: Connection, clock: Clock) -> None:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=60))
    lease = await given.claimed(db, policy=policy)
    timeout = await clock.now_ms() + 60_000
    await clock.advance(5)

    await renew(db, [lease], ttl=30)

    assert (await given.row(db, lease.execution_id))["attempt_timeout_at_ms"] == timeout


async def test_many_leases_are_renewed_in_one_call_in_order(db: Connection, clock: Clock) -> None:
    for _ in range(50):
        await given.created(db)
    leases = [task.lease for task in await claim(db, given.WORKER, ttl=30, limit=50)]
    await clock.advance(10)

    assert await renew(db, leases, ttl=60) == [None] * 50

    expiries = await db.fetch("SELECT DISTINCT lease_expires_at_ms FROM ff.execution")
    assert [record[0] for record in expiries] == [await clock.now_ms() + 60_000]


@pytest.mark.parametrize("ttl", [0, -1])
async def test_a_lease_must_be_renewed_for_a_while(db: Connection, ttl: float) -> None:
    lease = await given.claimed(db)

    with pytest.raises(ValidationError, match="ttl"):
        await renew(db, [lease], ttl=ttl)


async def test_a_renewal_touches_no_index(db: Connection) -> None:
    counters = """SELECT pg_stat_get_xact_tuples_hot_updated('ff.lease'::regclass) AS hot,
                         pg_stat_get_xact_tuples_updated('ff.lease'::regclass) AS updated"""
    lease = await given.claimed(db)
    async with db.transaction():
        before = await db.fetchrow(counters)
        await renew(db, [lease], ttl=30)
        after = await db.fetchrow(counters)

    assert before is not None
    assert after is not None
    assert after["updated"] - before["updated"] == 1
    assert after["hot"] - before["hot"] == 1
