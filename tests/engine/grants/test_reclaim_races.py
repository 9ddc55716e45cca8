"""A reclaim beside other claims of the execution."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.grants.reclaim_execution import GrantNotFound, reclaim_execution
from flowfabric.engine.grants.reclaimable import NotReclaimable
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.errors import GrantAlreadyExists, StaleLease
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import waiting
from tests.engine.grants import granted
from tests.engine.grants.granted import TERMS, reclaim_granted, reclaim_it

Another = Callable[[], Awaitable[Connection]]
RECLAIM: dict[str, Any] = {"worker_id": "w", "worker_instance_id": "w-2", "lease_ttl": 30}


@pytest.fixture
async def promised(db: Connection, clock: Clock) -> Lease:
    """A lease that was lost, granted for a reclaim, and that its holder can still save.

    The clock is back where the lease runs.
    """
    await granted.keyed(db)
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id)
    await clock.advance(-2)
    return lease


@pytest.mark.parametrize("write", ["complete", "renew"])
async def test_a_holder_that_comes_first_keeps_the_execution(
    db: Connection, clock: Clock, another: Another, promised: Lease, write: str
) -> None:
    first, second = await another(), await another()
    async with first.transaction():
        if write == "complete":
            [answer] = await complete(first, [Completion(promised)])
            assert isinstance(answer, Completed)
        else:
            assert await renew(first, [promised], ttl=60) == [None]
        await clock.advance(2)
        call = reclaim_it(second, promised.execution_id)
        waiting = await given.blocked(db, second, call)

    assert isinstance(await waiting, NotReclaimable)
    stored = await given.row(db, promised.execution_id)
    assert (stored["attempt_index"], stored["lease_reclaim_count"]) == (0, 0)
    assert stored["lease_epoch"] == promised.lease_epoch


@pytest.mark.parametrize("write", ["complete", "renew"])
async def test_a_holder_that_comes_second_has_lost_the_execution(
    db: Connection, clock: Clock, another: Another, promised: Lease, write: str
) -> None:
    await clock.advance(2)
    first, second = await another(), await another()
    async with first.transaction():
        task = await reclaim_execution(first, promised.execution_id, **RECLAIM)
        assert isinstance(task, ClaimedById)
        # By its own clock the holder is in time.
        await clock.advance(-2)
        call: Any = (
            complete(second, [Completion(promised)])
            if write == "complete"
            else renew(second, [promised], ttl=60)
        )
        waiting = await given.blocked(db, second, call)

    [answer] = await waiting
    assert isinstance(answer, StaleLease)
    assert (answer.held, answer.current) == (promised.lease_epoch, promised.lease_epoch + 2)
    assert (await given.row(db, promised.execution_id))["lease_id"] == task.lease.lease_id


async def test_of_two_with_one_grant_one_reclaims(
    db: Connection, clock: Clock, another: Another, promised: Lease
) -> None:
    await clock.advance(2)
    first, second = await another(), await another()
    async with first.transaction():
        await reclaim_execution(first, promised.execution_id, **RECLAIM)
        waiting = await given.blocked(db, second, reclaim_it(second, promised.execution_id))

    assert isinstance(await waiting, GrantNotFound)
    assert (await given.row(db, promised.execution_id))["lease_reclaim_count"] == 1


async def test_a_sweep_passes_over_what_is_reclaimed(
    db: Connection, clock: Clock, another: Another, promised: Lease
) -> None:
    await clock.advance(2)
    first = await another()
    async with first.transaction():
        await reclaim_execution(first, promised.execution_id, **RECLAIM)
        assert await expire_leases(db, limit=10) == 0

    assert [event for event, _ in await given.lease_events(db, promised.execution_id)] == [
        "acquired",
        "expired",
        "reclaimed",
    ]


async def test_a_sweep_that_comes_first_leaves_it_reclaimable(
    db: Connection, clock: Clock, another: Another, promised: Lease
) -> None:
    await clock.advance(2)
    first, second = await another(), await another()
    async with first.transaction():
        assert await expire_leases(first, limit=10) == 1
        waiting = await given.blocked(db, second, reclaim_it(second, promised.execution_id))

    assert isinstance(await waiting, ClaimedById)
    assert [event for event, _ in await given.lease_events(db, promised.execution_id)] == [
        "acquired",
        "expired",
        "reclaimed",
    ]


async def test_a_plain_claim_that_comes_first_is_not_robbed(
    db: Connection, clock: Clock, another: Another, promised: Lease
) -> None:
    await clock.advance(2)
    await expire_leases(db, limit=10)
    first, second = await another(), await another()
    async with first.transaction():
        [task] = await claim(first, given.OTHER, ttl=30)
        waiting = await given.blocked(db, second, reclaim_it(second, promised.execution_id))

    assert isinstance(await waiting, NotReclaimable)
    assert (await given.row(db, promised.execution_id))["lease_id"] == task.lease.lease_id


# As the engine runs them.


async def test_a_reclaim_through_the_engine_that_waited_looks_again(
    db: Connection, clock: Clock, another: Another, promised: Lease, ff_engine: Engine
) -> None:
    first = await another()
    async with first.transaction():
        assert await renew(first, [promised], ttl=60) == [None]
        await clock.advance(2)
        reclaiming = await waiting(
            db, ff_engine.reclaim_execution(promised.execution_id, **RECLAIM)
        )

    assert isinstance(await reclaiming, NotReclaimable)


async def test_a_grant_through_the_engine_that_waited_for_another_is_refused(
    db: Connection, clock: Clock, another: Another, ff_engine: Engine
) -> None:
    await granted.keyed(db)
    lease = await granted.lost(db, clock)
    first = await another()
    async with first.transaction():
        await reclaim_granted(first, lease.execution_id)
        granting = await waiting(db, ff_engine.issue_reclaim_grant(lease.execution_id, **TERMS))

    with pytest.raises(GrantAlreadyExists):
        await granting
    assert await db.fetchval("SELECT count(*) FROM ff.claim_grant") == 1


async def test_many_grants_and_reclaims_at_once_leave_one_holder(
    db: Connection, clock: Clock, ff_engine: Engine
) -> None:
    await granted.keyed(db)
    lease = await granted.lost(db, clock)
    execution_id = lease.execution_id

    async def grant(worker: str) -> str | None:
        terms: dict[str, Any] = TERMS | {"worker_id": worker}
        try:
            await ff_engine.issue_reclaim_grant(execution_id, **terms)
        except GrantAlreadyExists:
            return None
        return worker

    [winner] = [
        worker
        for worker in await asyncio.gather(*(grant(f"w{number}") for number in range(8)))
        if worker is not None
    ]

    async def reclaim(number: int) -> Any:
        return await ff_engine.reclaim_execution(
            execution_id, worker_id=winner, worker_instance_id=f"i{number}", lease_ttl=30
        )

    answers = await asyncio.gather(*(reclaim(number) for number in range(8)))

    [held] = [answer for answer in answers if isinstance(answer, ClaimedById)]
    stored = await given.row(db, execution_id)
    assert (stored["lease_id"], stored["lease_reclaim_count"]) == (held.lease.lease_id, 1)
    assert [event for event, _ in await given.lease_events(db, execution_id)] == [
        "acquired",
        "expired",
        "reclaimed",
    ]
