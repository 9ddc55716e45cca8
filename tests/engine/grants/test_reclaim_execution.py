"""A lost lease is made good by a new attempt."""

import logging
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.reclaim_execution import GrantNotFound
from flowfabric.engine.grants.reclaimable import NotReclaimable, ReclaimCapExceeded
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandleKind
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import NotFound, StaleLease, ValidationError
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.states import AttemptType
from flowfabric.testing import Clock
from tests import given
from tests.engine.grants import granted
from tests.engine.grants.granted import reclaim_granted, reclaim_it, unchanged

ACTIVE = "active/not_applicable/none/none/running_attempt → active"
FAILED = "terminal/not_applicable/none/failed/attempt_terminal → failed"


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def unchanging(db: Connection, execution_id: ExecutionId, **more: Any) -> Any:
    """The answer of a call that must not write anything."""
    async with unchanged(db):
        return await reclaim_it(db, execution_id, **more)


@pytest.mark.parametrize("swept", [False, True], ids=["expired", "voided by a sweep"])
async def test_a_new_attempt_takes_the_place_of_the_lost_one(
    db: Connection, clock: Clock, swept: bool
) -> None:
    began = await clock.now_ms()
    lease = await granted.lost(db, clock, input_payload=b"in", deadline=600)
    lost_at = await clock.now_ms()
    if swept:
        await expire_leases(db, limit=10)
    await reclaim_granted(db, lease.execution_id)
    lease_id = uuid4()
    await clock.advance(5)

    task = await reclaim_it(db, lease.execution_id, lease_id=lease_id)

    now = await clock.now_ms()
    assert isinstance(task, ClaimedById)
    assert await given.standing(db, lease.execution_id) == ACTIVE
    stored = await given.row(db, lease.execution_id)
    assert stored == stored | {
        "attempt_index": 1,
        "attempt_type": "reclaim",
        "total_attempt_count": 2,
        "retry_count": 0,
        "lease_reclaim_count": 1,
        "lease_lost": False,
        "lease_epoch": lease.lease_epoch + 2,
        "lease_id": lease_id,
        "lease_expires_at_ms": now + 30_000,
        "worker_id": "w",
        "worker_instance_id": "w-2",
        "started_at_ms": began,
        "attempt_started_at_ms": now,
        "last_mutation_at_ms": now,
    }
    assert task.lease == Lease(lease.execution_id, 1, lease.lease_epoch + 2, lease_id)
    assert (task.kind, task.attempt_type) == (LeaseHandleKind.RECLAIMED, AttemptType.RECLAIM)
    assert task.handle.attempt_id == attempt_id(lease.execution_id, 1)
    assert (task.input_payload, task.total_attempt_count) == (b"in", 2)
    assert await granted.grants(db) == []
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("expired", None),
        ("reclaimed", None),
    ]
    assert await given.completion_events(db, lease.execution_id) == []
    [prior] = await given.attempts(db, lease.execution_id)
    assert prior == prior | {
        "attempt_index": 0,
        "attempt_type": "initial",
        "outcome": "interrupted_reclaimed",
        "lease_id": lease.lease_id,
        "lease_epoch": lease.lease_epoch,
        "worker_instance_id": "w-1",
        "started_at_ms": began,
        "ended_at_ms": lost_at if swept else now,
    }


async def test_the_reclaimed_event_tells_who_holds_what(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id)

    task = await reclaim_it(db, lease.execution_id)

    told = (await given.lease_history(db, lease.execution_id))[-1]
    assert told == told | {
        "event_type": "reclaimed",
        "lease_id": task.lease.lease_id,
        "lease_epoch": task.lease.lease_epoch,
        "attempt_index": 1,
        "worker_instance_id": "w-2",
    }


async def test_whoever_reclaimed_completes_and_whoever_lost_does_not(
    db: Connection, clock: Clock
) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id)
    task = await reclaim_it(db, lease.execution_id)

    [late] = await complete(db, [Completion(lease, b"late")])
    [done] = await complete(db, [Completion(task.lease, b"good")])

    assert isinstance(late, StaleLease)
    assert isinstance(done, Completed)
    outcomes = [attempt["outcome"] for attempt in await given.attempts(db, lease.execution_id)]
    assert outcomes == ["interrupted_reclaimed", "success"]
    assert await given.completion_events(db, lease.execution_id) == ["success"]


async def test_a_lease_that_was_given_back_can_be_reclaimed(db: Connection) -> None:
    lease = await given.claimed(db)
    await release(db, [lease])
    await reclaim_granted(db, lease.execution_id)

    task = await reclaim_it(db, lease.execution_id)

    assert task.lease.lease_epoch == lease.lease_epoch + 2
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "released"),
        ("reclaimed", None),
    ]


async def test_epochs_and_attempts_only_grow_over_many_reclaims(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    leases = [lease]
    for number in range(5):
        await clock.advance(31)
        if number % 2:
            await expire_leases(db, limit=10)
        await reclaim_granted(db, lease.execution_id)
        leases.append((await reclaim_it(db, lease.execution_id)).lease)

    assert [each.attempt_index for each in leases] == list(range(6))
    assert [each.lease_epoch for each in leases] == [1, 3, 5, 7, 9, 11]
    stored = await given.row(db, lease.execution_id)
    assert (stored["lease_reclaim_count"], stored["total_attempt_count"]) == (5, 6)
    attempts = await given.attempts(db, lease.execution_id)
    assert [attempt["attempt_type"] for attempt in attempts] == ["initial", *["reclaim"] * 4]
    assert {attempt["outcome"] for attempt in attempts} == {"interrupted_reclaimed"}


async def test_a_reclaimed_attempt_that_is_lost_goes_on_as_one(
    db: Connection, clock: Clock
) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id)
    await reclaim_it(db, lease.execution_id)
    await clock.advance(31)
    await expire_leases(db, limit=10)

    [task] = await claim(db, given.WORKER, ttl=30)

    assert (task.attempt_type, task.total_attempt_count) == (AttemptType.RECLAIM, 2)
    assert task.lease.attempt_index == 1
    assert (await given.row(db, lease.execution_id))["lease_reclaim_count"] == 2


@pytest.mark.parametrize("timeout", [None, 1.5, timedelta(seconds=1.5)])
async def test_the_time_of_the_attempt_counts_anew(
    db: Connection, clock: Clock, timeout: Any
) -> None:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=90))
    lease = await granted.lost(db, clock, policy=policy)
    await reclaim_granted(db, lease.execution_id)

    task = await reclaim_it(db, lease.execution_id, attempt_timeout=timeout)

    assert task.attempt_timeout == (90.0 if timeout is None else 1.5)


# Refusals, in their order.


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"worker_id": ""}, "worker_id"),
        ({"worker_instance_id": "a b"}, "worker_instance_id"),
        ({"lease_ttl": 0}, "lease_ttl"),
        ({"attempt_timeout": -1}, "attempt_timeout"),
        ({"max_reclaim_count": -1}, "max_reclaim_count"),
    ],
)
async def test_the_call_must_make_sense(db: Connection, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        await unchanging(db, ExecutionId.mint(), **fields)


async def test_without_a_grant_there_is_nothing_to_redeem(db: Connection, clock: Clock) -> None:
    for execution_id in (ExecutionId.mint(), (await granted.lost(db, clock)).execution_id):
        answer = await unchanging(db, execution_id)
        assert answer == GrantNotFound(execution_id=execution_id)


async def test_a_grant_to_claim_is_none_to_reclaim(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    await expire_leases(db, limit=10)
    await granted.claim_granted(db, lease.execution_id)

    assert isinstance(await unchanging(db, lease.execution_id), GrantNotFound)


@pytest.mark.parametrize("later", [0, 60])
async def test_a_grant_is_good_for_its_own_worker_only(
    db: Connection, clock: Clock, later: int
) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id)
    await clock.advance(later)

    with pytest.raises(ValidationError, match="worker_id 'x'") as refused:
        await unchanging(db, lease.execution_id, worker_id="x")

    assert refused.value.code == "invalid_input"


async def test_a_grant_is_over_when_its_instant_has_come(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id, grant_ttl=5)
    await clock.advance(5)
    assert isinstance(await unchanging(db, lease.execution_id), GrantNotFound)
    await clock.advance(-0.001)

    assert isinstance(await reclaim_it(db, lease.execution_id), ClaimedById)


async def test_the_latest_grant_is_the_one_that_counts(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id, grant_ttl=0.001)
    await clock.advance(0.001)
    await reclaim_granted(db, lease.execution_id, worker_id="x")

    with pytest.raises(ValidationError):
        await unchanging(db, lease.execution_id)
    assert isinstance(await reclaim_it(db, lease.execution_id, worker_id="x"), ClaimedById)
    assert await granted.grants(db) == []


async def test_a_grant_whose_execution_is_gone_finds_nothing(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id)
    await db.execute("DELETE FROM ff.exec_core")

    with pytest.raises(NotFound):
        await unchanging(db, lease.execution_id)


async def test_what_ended_meanwhile_is_not_reclaimable(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    grant = await reclaim_granted(db, lease.execution_id)
    # The worker that was thought dead comes back in time, by the clock of its own.
    await clock.advance(-2)
    await complete(db, [Completion(lease)])
    await clock.advance(2)

    answer = await unchanging(db, grant.execution_id)

    assert answer == NotReclaimable(
        execution_id=lease.execution_id, detail="it has ended as completed"
    )


async def test_what_somebody_claimed_meanwhile_is_not_reclaimable(
    db: Connection, clock: Clock
) -> None:
    lease = await granted.lost(db, clock)
    await expire_leases(db, limit=10)
    await reclaim_granted(db, lease.execution_id)
    await claim(db, given.OTHER, ttl=30)

    answer = await unchanging(db, lease.execution_id)

    assert answer == NotReclaimable(execution_id=lease.execution_id, detail="its lease still runs")


async def test_nothing_is_reclaimed_on_a_lane_that_is_not_active(
    db: Connection, clock: Clock
) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id)
    await db.execute("UPDATE ff.lane_registry SET lane_state = 'paused'")

    assert isinstance(await unchanging(db, lease.execution_id), NotReclaimable)


async def test_a_cancelled_execution_has_no_grant_left(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id)
    await cancel_execution(db, lease.execution_id, reason="no")

    assert isinstance(await unchanging(db, lease.execution_id), GrantNotFound)


async def test_a_grant_is_used_once(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock)
    await reclaim_granted(db, lease.execution_id)
    await reclaim_it(db, lease.execution_id)

    assert isinstance(await unchanging(db, lease.execution_id), GrantNotFound)


# The cap.


@pytest.mark.parametrize("swept", [False, True], ids=["expired", "voided by a sweep"])
@pytest.mark.parametrize(
    ("policy", "argument", "cap"),
    [
        (None, None, 1000),
        (ExecutionPolicy(), None, 100),
        (ExecutionPolicy(max_reclaim_count=3), None, 3),
        (ExecutionPolicy(max_reclaim_count=7), 3, 3),
        (ExecutionPolicy(max_reclaim_count=7), 0, 0),
    ],
    ids=["no policy", "a policy", "a cap of its own", "the caller's cap", "none at all"],
)
async def test_one_reclaim_more_than_the_cap_ends_it(
    db: Connection,
    clock: Clock,
    swept: bool,
    policy: ExecutionPolicy | None,
    argument: int | None,
    cap: int,
) -> None:
    lease = await granted.lost(db, clock, policy=policy)
    if swept:
        await expire_leases(db, limit=10)
    await reclaim_granted(db, lease.execution_id)
    # Many losses by hand are the same loss many times.
    for table in ("exec_core", "lease"):
        await db.execute(f"UPDATE ff.{table} SET lease_reclaim_count = $1", cap)
    await clock.advance(5)

    answer = await reclaim_it(db, lease.execution_id, max_reclaim_count=argument)

    assert answer == ReclaimCapExceeded(execution_id=lease.execution_id, reclaim_count=cap + 1)
    assert await given.standing(db, lease.execution_id) == FAILED
    stored = await given.row(db, lease.execution_id)
    assert stored == stored | {
        "failure_reason": "max_reclaims_exceeded",
        "failure_category": "infra_crash",
        "lease_epoch": lease.lease_epoch + 1,
        "attempt_index": 0,
        "total_attempt_count": 1,
        "lease_reclaim_count": cap,
        "terminal_at_ms": await clock.now_ms(),
    }
    assert await granted.grants(db) == []
    assert await given.completion_events(db, lease.execution_id) == ["failed"]
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("expired", None),
    ]
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt["outcome"] == "failed"


@pytest.mark.parametrize("argument", [None, 9])
async def test_the_last_reclaim_that_is_allowed_is_made(
    db: Connection, clock: Clock, argument: int | None
) -> None:
    cap = 3 if argument is None else argument
    lease = await granted.lost(db, clock, policy=ExecutionPolicy(max_reclaim_count=3))
    await reclaim_granted(db, lease.execution_id)
    await db.execute("UPDATE ff.lease SET lease_reclaim_count = $1", cap - 1)

    task = await reclaim_it(db, lease.execution_id, max_reclaim_count=argument)

    assert isinstance(task, ClaimedById)
    assert (await given.row(db, lease.execution_id))["lease_reclaim_count"] == cap


async def test_a_count_below_nothing_counts_as_nothing(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock, policy=ExecutionPolicy(max_reclaim_count=5))
    await reclaim_granted(db, lease.execution_id)
    await db.execute("UPDATE ff.lease SET lease_reclaim_count = -3")

    answer = await reclaim_it(db, lease.execution_id, max_reclaim_count=0)

    assert answer == ReclaimCapExceeded(execution_id=lease.execution_id, reclaim_count=1)
    assert await given.standing(db, lease.execution_id) == FAILED


@pytest.mark.parametrize(("before", "warned"), [(98, False), (99, True), (100, False), (199, True)])
async def test_every_hundredth_reclaim_is_warned_of(
    db: Connection, clock: Clock, caplog: pytest.LogCaptureFixture, before: int, warned: bool
) -> None:
    lease = await granted.lost(db, clock, policy=ExecutionPolicy(max_reclaim_count=1000))
    await reclaim_granted(db, lease.execution_id)
    await db.execute("UPDATE ff.lease SET lease_reclaim_count = $1", before)

    with caplog.at_level(logging.WARNING, "flowfabric.lifecycle"):
        await reclaim_it(db, lease.execution_id)

    said = [record.getMessage() for record in caplog.records]
    assert [str(lease.execution_id) in text and str(before + 1) in text for text in said] == (
        [True] if warned else []
    )
