"""A worker goes on with an interrupted attempt by the signed grant that it was given."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.grants.claim_from_resume_grant import claim_from_resume_grant
from flowfabric.engine.grants.grant import ClaimGrant, ReclaimGrant
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandleKind
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import InvalidClaimGrant, InvalidGrant, NotFound, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.testing import Clock
from tests import given
from tests.engine.grants import granted
from tests.engine.grants.granted import claim_granted, reclaim_granted, unchanged
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import deliver

Another = Callable[[], Awaitable[Connection]]
Grant = ClaimGrant | ReclaimGrant


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def go_on(db: Connection, grant: Grant, **more: Any) -> ClaimedById | None:
    fields: dict[str, Any] = {"worker_id": "w", "worker_instance_id": "w-2", "lease_ttl": 30}
    async with db.transaction():
        return await claim_from_resume_grant(db, grant, **fields | more)


async def refused(db: Connection, grant: Grant, error: Any, **fields: Any) -> Any:
    """The error, after which nothing was written."""
    async with unchanged(db):
        with pytest.raises(error) as told:
            await go_on(db, grant, **fields)
    return told.value


async def released(db: Connection) -> Lease:
    """A lease that was given up; its execution waits for a worker."""
    lease = await given.claimed(db)
    await release(db, [lease])
    return lease


async def test_one_that_was_resumed_goes_on_in_the_same_attempt(db: Connection) -> None:
    held = await parked.parked(db)
    await deliver(db, held.id, held.waitpoint)
    grant = await claim_granted(db, held.id)
    lease_id = uuid4()

    task = await go_on(db, grant, lease_id=lease_id)

    assert task is not None
    assert (task.kind, task.lease.attempt_id) == (LeaseHandleKind.RESUMED, held.lease.attempt_id)
    assert task.lease.lease_id == lease_id
    assert await granted.grants(db) == []
    events = [event for event, _ in await given.lease_events(db, held.id)]
    assert events == ["acquired", "revoked", "acquired"]
    # Nobody can go on with the grant again; nor is that a fault while the attempt runs.
    async with unchanged(db):
        assert await go_on(db, grant) is None


async def test_a_lost_lease_is_voided_first_and_its_attempt_goes_on(
    db: Connection, clock: Clock
) -> None:
    lost = await granted.lost(db, clock)
    swept = await granted.lost(db, clock)
    grants = [await reclaim_granted(db, each.execution_id) for each in (lost, swept)]
    await expire_leases(db, limit=1)

    for lease, grant in zip((lost, swept), grants, strict=True):
        task = await go_on(db, grant)

        assert task is not None
        epoch = lease.lease_epoch + 2
        assert task.lease == Lease(lease.execution_id, 0, epoch, task.lease.lease_id)
        assert (await given.row(db, lease.execution_id))["lease_reclaim_count"] == 1
        events = [event for event, _ in await given.lease_events(db, lease.execution_id)]
        assert events == ["acquired", "expired", "acquired"]


async def test_what_cannot_go_on_is_answered_by_none(db: Connection, clock: Clock) -> None:
    async def paused(lease: Lease) -> None:
        await db.execute("UPDATE ff.lane_registry SET lane_state = 'paused'")

    async def claimed(lease: Lease) -> None:
        assert await claim(db, given.WORKER, ttl=30)

    async def completed(lease: Lease) -> None:
        [task] = await claim(db, given.WORKER, ttl=30)
        await complete(db, [Completion(task.lease)])

    async def failed(lease: Lease) -> None:
        [task] = await claim(db, given.WORKER, ttl=30)
        await fail(db, [Failure(lease=task.lease, reason="no")])

    async def cancelled(lease: Lease) -> None:
        await cancel_execution(db, lease.execution_id, reason="no")

    retried = ExecutionPolicy(
        retry_policy=RetryPolicy(max_retries=2, backoff=FixedBackoff(delay=0))
    )
    for happens in (claimed, completed, failed, cancelled, paused):
        lease = await given.claimed(db, policy=retried)
        await release(db, [lease])
        grant = await claim_granted(db, lease.execution_id, worker_id=given.WORKER.worker_id)
        await happens(lease)
        async with unchanged(db):
            assert await go_on(db, grant) is None, happens.__name__
        await db.execute("UPDATE ff.lane_registry SET lane_state = 'active'")
        await db.execute("DELETE FROM ff.ready")


async def test_an_execution_without_an_attempt_is_not_found(db: Connection) -> None:
    execution_id = await given.created(db)
    grant = await claim_granted(db, execution_id)

    error = await refused(db, grant, NotFound)

    assert error.entity == "attempt"
    nobody = ExecutionId.mint()
    forged = msgspec.structs.replace(
        grant,
        execution_id=nobody,
        grant_key=grant.grant_key.replace(str(execution_id), str(nobody)),
    )
    assert (await refused(db, forged, NotFound)).entity == "execution"


async def test_only_the_worker_of_the_grant_goes_on_while_it_is_valid(
    db: Connection, clock: Clock
) -> None:
    lease = await released(db)
    grant = await claim_granted(db, lease.execution_id, grant_ttl=5)
    forged = msgspec.structs.replace(grant, grant_key=grant.grant_key[:-4] + "0000")

    await refused(db, grant, InvalidClaimGrant, worker_id="another")
    await refused(db, grant, ValidationError, worker_id="")
    assert (await refused(db, forged, InvalidGrant)).code == "grant_unknown"
    await clock.advance(5)
    assert (await refused(db, grant, InvalidGrant)).code == "grant_expired"


async def test_of_two_with_one_grant_one_goes_on(
    db: Connection, ff_engine: Engine, another: Another
) -> None:
    lease = await released(db)
    grant = await claim_granted(db, lease.execution_id)
    first, second = await another(), await another()
    async with first.transaction():
        won = await go_on(first, grant)
        waiting = await given.blocked(db, second, go_on(second, grant))

    assert won is not None
    assert await waiting is None
    assert (await given.row(db, lease.execution_id))["lease_id"] == won.lease.lease_id
