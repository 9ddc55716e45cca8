"""A worker is promised an execution whose lease was lost."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.grant import grant_id
from flowfabric.engine.grants.issue_reclaim_grant import issue_reclaim_grant
from flowfabric.engine.grants.reclaimable import NotReclaimable, ReclaimCapExceeded
from flowfabric.engine.grants.verify_grant import verify_grant
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.revoke_lease import revoke_lease
from flowfabric.errors import GrantAlreadyExists, NotFound, Unavailable, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.policy import ExecutionPolicy
from flowfabric.testing import Clock
from tests import given
from tests.engine import controls
from tests.engine.grants import granted
from tests.engine.grants.granted import (
    BAD_GROUNDS,
    BAD_TERMS,
    GROUNDS,
    TERMS,
    reclaim_granted,
    unchanged,
)

Another = Callable[[], Awaitable[Connection]]


@pytest.fixture
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def answer(db: Connection, execution_id: ExecutionId, **terms: Any) -> Any:
    """The answer of a call that must not write anything."""
    async with unchanged(db), db.transaction():
        return await issue_reclaim_grant(db, execution_id, **TERMS | terms)


async def obstacle(db: Connection, execution_id: ExecutionId) -> str:
    told = await answer(db, execution_id)
    assert isinstance(told, NotReclaimable)
    assert told.execution_id == execution_id
    return told.detail


async def refused(db: Connection, execution_id: ExecutionId, error: Any, **terms: Any) -> Any:
    with pytest.raises(error) as told:
        await answer(db, execution_id, **terms)
    return told.value


@pytest.mark.parametrize("way", ["expired", "swept", "revoked", "released"])
async def test_a_lost_lease_may_be_reclaimed_and_the_execution_is_not_touched(
    db: Connection, clock: Clock, key: None, way: str
) -> None:
    if way in ("expired", "swept"):
        execution_id = (await granted.lost(db, clock)).execution_id
    else:
        execution_id = await controls.execution(db, "active" if way == "revoked" else way)
    if way == "swept":
        await expire_leases(db, limit=10)
    if way == "revoked":
        await revoke_lease(db, execution_id, reason="no")
    before = await given.row(db, execution_id), await given.lease_events(db, execution_id)
    await clock.advance(5)

    grant = await reclaim_granted(db, execution_id, **GROUNDS)

    now = await clock.now_ms()
    assert (grant.execution_id, grant.expires_at) == (execution_id, instant(now + 10_000))
    assert (grant.lane_id, grant.partition_key) == (
        "default",
        f"{{fp:{execution_id.partition_key}}}",
    )
    assert grant.grant_key.startswith("pg:reclaim:{fp:")
    [stored] = await granted.grants(db)
    assert stored == stored | {
        "grant_id": grant_id(grant.grant_key),
        "execution_id": execution_id.uuid,
        "kind": "reclaim",
        "worker_id": "w",
        "lane_id": "default",
        "capability_hash": "c0ffee",
        "issued_at_ms": now,
        "expires_at_ms": now + 10_000,
    }
    assert (await given.row(db, execution_id), await given.lease_events(db, execution_id)) == before
    await verify_grant(db, grant)


@pytest.mark.parametrize(("terms", "named"), BAD_TERMS + BAD_GROUNDS)
async def test_the_terms_must_make_sense(db: Connection, terms: dict[str, Any], named: str) -> None:
    assert named in str(await refused(db, ExecutionId.mint(), ValidationError, **terms))


async def test_without_a_key_nothing_can_be_granted(db: Connection) -> None:
    error = await refused(db, ExecutionId.mint(), Unavailable)

    assert "issue_reclaim_grant" in str(error)


async def test_an_execution_that_does_not_exist_is_not_found(db: Connection, key: None) -> None:
    await refused(db, ExecutionId.mint(), NotFound)


async def test_another_lane_than_its_own_is_refused(
    db: Connection, clock: Clock, key: None
) -> None:
    lease = await granted.lost(db, clock)

    error = await refused(db, lease.execution_id, ValidationError, lane_id="other")

    assert error.code == "invalid_input"


@pytest.mark.parametrize(
    ("policy", "cap"),
    [(None, 5), (ExecutionPolicy(), 5), (ExecutionPolicy(max_reclaim_count=2), 2)],
    ids=["no policy", "a policy", "a cap of its own"],
)
async def test_at_the_cap_nothing_is_granted_and_nothing_ends(
    db: Connection, clock: Clock, key: None, policy: ExecutionPolicy | None, cap: int
) -> None:
    lease = await granted.lost(db, clock, policy=policy)
    await db.execute("UPDATE ff.lease SET lease_reclaim_count = $1", cap)

    assert await answer(db, lease.execution_id) == ReclaimCapExceeded(
        execution_id=lease.execution_id, reclaim_count=cap
    )

    await db.execute("UPDATE ff.lease SET lease_reclaim_count = $1", cap - 1)
    await reclaim_granted(db, lease.execution_id)


async def test_a_count_below_nothing_counts_as_nothing(
    db: Connection, clock: Clock, key: None
) -> None:
    lease = await granted.lost(db, clock, policy=ExecutionPolicy(max_reclaim_count=0))
    await db.execute("UPDATE ff.lease SET lease_reclaim_count = -3")

    assert await answer(db, lease.execution_id) == ReclaimCapExceeded(
        execution_id=lease.execution_id, reclaim_count=0
    )


async def test_the_cap_is_said_before_anything_about_the_lease(db: Connection, key: None) -> None:
    execution_id = await given.created(db, policy=ExecutionPolicy(max_reclaim_count=0))

    assert isinstance(await answer(db, execution_id), ReclaimCapExceeded)


async def test_a_lease_that_runs_is_not_lost(db: Connection, clock: Clock, key: None) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(29.999)

    assert await obstacle(db, lease.execution_id) == "its lease still runs"
    await clock.advance(0.001)
    await reclaim_granted(db, lease.execution_id)


@pytest.mark.parametrize("state", ["waiting", "delayed", "retrying", "blocked"])
async def test_what_waits_without_a_loss_is_not_reclaimable(
    db: Connection, key: None, state: str
) -> None:
    execution_id = await controls.execution(db, state)

    assert await given.public_state(db, execution_id) in await obstacle(db, execution_id)


@pytest.mark.parametrize("state", controls.TERMINAL)
async def test_what_ended_is_not_reclaimable(db: Connection, key: None, state: str) -> None:
    execution_id = await controls.execution(db, state)

    assert await obstacle(db, execution_id) == f"it has ended as {state}"


async def test_an_attempt_that_was_put_down_is_not_lost(
    db: Connection, clock: Clock, key: None
) -> None:
    lease = await given.claimed(db)
    await delay(db, [DelayRequest(lease=lease, delay=1)])
    await clock.advance(1)
    await promote_due(db, limit=10)

    assert "interrupted" in await obstacle(db, lease.execution_id)


async def test_nothing_is_granted_on_a_lane_that_is_not_active(
    db: Connection, clock: Clock, key: None
) -> None:
    lease = await granted.lost(db, clock)
    await db.execute("UPDATE ff.lane_registry SET lane_state = 'paused'")

    assert "paused" in await obstacle(db, lease.execution_id)


@pytest.mark.parametrize("first", ["claim", "reclaim"])
async def test_a_second_grant_waits_until_the_first_has_run_out(
    db: Connection, clock: Clock, key: None, first: str
) -> None:
    lease = await granted.lost(db, clock)
    await expire_leases(db, limit=10)
    if first == "claim":
        await granted.claim_granted(db, lease.execution_id)
    else:
        await reclaim_granted(db, lease.execution_id)
    await clock.advance(9.999)

    for worker in ("w", "x"):
        await refused(db, lease.execution_id, GrantAlreadyExists, worker_id=worker)
    await clock.advance(0.001)

    await reclaim_granted(db, lease.execution_id, worker_id="x")


async def test_a_worker_that_lacks_capabilities_is_told_which(
    db: Connection, clock: Clock, key: None
) -> None:
    await given.created(db, required_capabilities=("ssd", "gpu"))
    able = given.Claimant(
        worker_id="w",
        worker_instance_id="w-1",
        lanes=("default",),
        capabilities=("gpu", "ssd"),
    )
    [task] = await claim(db, able, ttl=30)
    await clock.advance(30)

    error = await refused(db, task.lease.execution_id, ValidationError)
    assert (error.code, error.detail) == ("capability_mismatch", "gpu,ssd")

    await reclaim_granted(db, task.lease.execution_id, worker_capabilities=["gpu", "ssd"])


async def test_a_renewal_that_holds_the_row_saves_the_lease(
    db: Connection, clock: Clock, another: Another, key: None
) -> None:
    lease = await given.claimed(db, ttl=30)
    first, second = await another(), await another()
    async with first.transaction():
        assert await renew(first, [lease], ttl=60) == [None]
        await clock.advance(31)
        call = issue_reclaim_grant(second, lease.execution_id, **TERMS)
        waiting = await given.blocked(db, second, call)

    assert isinstance(await waiting, NotReclaimable)


async def test_of_two_at_once_one_is_granted_it(
    db: Connection, clock: Clock, another: Another, key: None
) -> None:
    lease = await granted.lost(db, clock)
    first, second = await another(), await another()
    async with first.transaction():
        await issue_reclaim_grant(first, lease.execution_id, **TERMS)
        call = reclaim_granted(second, lease.execution_id, worker_id="x")
        waiting = await given.blocked(db, second, call)

    with pytest.raises(GrantAlreadyExists):
        await waiting
