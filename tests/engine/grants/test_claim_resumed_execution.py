"""The worker that was granted an interrupted execution goes on with it."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.grants.claim_resumed_execution import claim_resumed_execution
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandleKind
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.revoke_lease import revoke_lease
from flowfabric.errors import (
    ClaimGrantExpired,
    ExecutionNotLeaseable,
    InvalidClaimGrant,
    NotAResumedExecution,
    NotFound,
    UseClaimResumed,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.states import AttemptType
from flowfabric.testing import Clock
from tests import given
from tests.engine import controls
from tests.engine.grants import granted
from tests.engine.grants.granted import claim_granted, unchanged
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import deliver

Another = Callable[[], Awaitable[Connection]]
ACTIVE = "active/not_applicable/none/none/running_attempt → active"


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def resume_it(db: Connection, execution_id: ExecutionId, **more: Any) -> ClaimedById:
    fields: dict[str, Any] = {"worker_id": "w", "worker_instance_id": "w-2", "lease_ttl": 30}
    async with db.transaction():
        return await claim_resumed_execution(db, execution_id, **fields | more)


async def refused(db: Connection, execution_id: ExecutionId, error: Any, **fields: Any) -> Any:
    """The error, after which nothing was written."""
    async with unchanged(db):
        with pytest.raises(error) as told:
            await resume_it(db, execution_id, **fields)
    return told.value


async def interrupted(db: Connection, clock: Clock, way: str) -> Lease:
    """A lease that was given up or taken away, whose execution waits for a worker."""
    lease = await given.claimed(db, ttl=30)
    match way:
        case "released":
            await release(db, [lease])
        case "delayed":
            await delay(db, [DelayRequest(lease=lease, delay=1)])
            await clock.advance(1)
            await promote_due(db, limit=10)
        case "revoked":
            await revoke_lease(db, lease.execution_id, reason="no")
        case "lost":
            await clock.advance(31)
            await expire_leases(db, limit=10)
        case _:
            await release(db, [lease])
            await db.execute("UPDATE ff.exec_core SET resume_pending = true")
    return lease


@pytest.mark.parametrize(
    ("way", "counted"),
    [("resumed", 0), ("released", 0), ("delayed", 0), ("revoked", 1), ("lost", 1)],
)
async def test_the_same_attempt_goes_on_under_a_new_epoch(
    db: Connection, clock: Clock, way: str, counted: int
) -> None:
    began = await clock.now_ms()
    lease = await interrupted(db, clock, way)
    epoch = (await given.row(db, lease.execution_id))["lease_epoch"]
    await claim_granted(db, lease.execution_id)
    lease_id = uuid4()
    await clock.advance(5)

    task = await resume_it(db, lease.execution_id, lease_id=lease_id)

    now = await clock.now_ms()
    assert await given.standing(db, lease.execution_id) == ACTIVE
    stored = await given.row(db, lease.execution_id)
    assert stored == stored | {
        "attempt_index": 0,
        "attempt_type": "initial",
        "total_attempt_count": 1,
        "lease_reclaim_count": counted,
        "lease_epoch": epoch + 1,
        "lease_id": lease_id,
        "lease_expires_at_ms": now + 30_000,
        "worker_instance_id": "w-2",
        "started_at_ms": began,
        "attempt_started_at_ms": began,
        "resume_pending": False,
    }
    assert task.lease == Lease(lease.execution_id, 0, epoch + 1, lease_id)
    assert task.lease.attempt_id == lease.attempt_id
    assert (task.kind, task.attempt_type) == (LeaseHandleKind.RESUMED, AttemptType.INITIAL)
    assert task.lease_expires_at.timestamp() * 1000 == now + 30_000
    assert await granted.grants(db) == []
    events = [event for event, _ in await given.lease_events(db, lease.execution_id)]
    assert events == ["acquired", "expired" if way == "lost" else "revoked", "acquired"]


@pytest.mark.parametrize("delayed", [False, True])
async def test_one_that_was_suspended_and_resumed_needs_no_grant(
    db: Connection, clock: Clock, ff_engine: Engine, delayed: bool
) -> None:
    held = await parked.parked(db)
    if delayed:
        await ff_engine.resume_execution(held.id, delay=5)
        await refused(db, held.id, ExecutionNotLeaseable)
        await clock.advance(5)
        await promote_due(db, limit=10)
    else:
        await deliver(db, held.id, held.waitpoint)

    with pytest.raises(UseClaimResumed):
        await ff_engine.claim_execution(
            held.id,
            worker_id="w",
            worker_instance_id="w-1",
            expected_attempt_index=0,
            lease_ttl=30,
        )
    task = await resume_it(db, held.id)

    assert (task.kind, task.lease.attempt_id) == (LeaseHandleKind.RESUMED, held.lease.attempt_id)
    assert (await given.row(db, held.id))["resume_pending"] is False
    await release(db, [task.lease])
    await refused(db, held.id, InvalidClaimGrant)  # interrupted, but not resumed


async def test_a_grant_of_a_resumed_execution_is_for_its_worker_only(
    db: Connection, clock: Clock, ff_engine: Engine
) -> None:
    held = await parked.parked(db)
    await refused(db, held.id, ExecutionNotLeaseable)
    await ff_engine.resume_execution(held.id)
    await claim_granted(db, held.id)

    await refused(db, held.id, InvalidClaimGrant, worker_id="another")

    assert (await resume_it(db, held.id)).kind is LeaseHandleKind.RESUMED
    assert await granted.grants(db) == []


async def test_the_time_that_is_left_may_be_given(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(
        db, policy=ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=60))
    )
    await release(db, [lease])
    await claim_granted(db, lease.execution_id)

    task = await resume_it(db, lease.execution_id, attempt_timeout=2)

    assert task.attempt_timeout == 2.0


async def test_the_call_must_make_sense(db: Connection) -> None:
    for fields in ({"worker_id": ""}, {"worker_instance_id": ""}, {"lease_ttl": 0}):
        await refused(db, ExecutionId.mint(), ValidationError, **fields)


async def test_an_execution_that_does_not_exist_is_not_found(db: Connection) -> None:
    await refused(db, ExecutionId.mint(), NotFound)


@pytest.mark.parametrize("state", ["delayed", "retrying", "blocked", "active", *controls.TERMINAL])
async def test_what_does_not_wait_for_a_worker_is_not_leaseable(db: Connection, state: str) -> None:
    execution_id = await controls.execution(db, state)

    error = await refused(db, execution_id, ExecutionNotLeaseable)

    assert await given.public_state(db, execution_id) in str(error)


async def test_nothing_is_resumed_on_a_lane_that_starts_nothing(
    db: Connection, clock: Clock
) -> None:
    lease = await interrupted(db, clock, "released")
    await claim_granted(db, lease.execution_id)
    await db.execute("UPDATE ff.lane_registry SET lane_state = 'paused'")

    error = await refused(db, lease.execution_id, ExecutionNotLeaseable)

    assert "paused" in str(error)


async def test_what_was_never_interrupted_is_claimed_not_resumed(db: Connection) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id)

    await refused(db, execution_id, NotAResumedExecution)


async def test_it_needs_a_grant_of_its_own_that_runs(db: Connection, clock: Clock) -> None:
    lease = await interrupted(db, clock, "released")
    await refused(db, lease.execution_id, InvalidClaimGrant)
    await claim_granted(db, lease.execution_id, grant_ttl=5)
    await refused(db, lease.execution_id, InvalidClaimGrant, worker_id="x")
    await clock.advance(5)
    await refused(db, lease.execution_id, ClaimGrantExpired)


async def test_in_its_last_millisecond_a_grant_counts(db: Connection, clock: Clock) -> None:
    lease = await interrupted(db, clock, "released")
    await claim_granted(db, lease.execution_id, grant_ttl=5)
    await clock.advance(4.999)

    await resume_it(db, lease.execution_id)


async def test_of_two_with_one_grant_one_goes_on(
    db: Connection, clock: Clock, another: Another
) -> None:
    lease = await interrupted(db, clock, "lost")
    await claim_granted(db, lease.execution_id)
    first, second = await another(), await another()
    async with first.transaction():
        won = await resume_it(first, lease.execution_id)
        waiting = await given.blocked(db, second, resume_it(second, lease.execution_id))

    with pytest.raises(ExecutionNotLeaseable):
        await waiting
    stored = await given.row(db, lease.execution_id)
    assert (stored["lease_id"], stored["lease_reclaim_count"]) == (won.lease.lease_id, 1)
