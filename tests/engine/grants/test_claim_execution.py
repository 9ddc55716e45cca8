"""The worker that was granted an execution claims it by name."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.claim_execution import claim_execution
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease, LeaseHandle, LeaseHandleKind
from flowfabric.engine.lifecycle.release import release
from flowfabric.engine.operators.replay_execution import replay_execution
from flowfabric.errors import (
    ClaimGrantExpired,
    ExecutionNotActive,
    ExecutionNotLeaseable,
    InvalidClaimGrant,
    NotFound,
    UseClaimResumed,
    ValidationError,
)
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.policy import ExecutionPolicy, FixedBackoff, TimeoutPolicy
from flowfabric.states import AttemptType
from flowfabric.testing import Clock
from tests import given
from tests.engine import controls
from tests.engine.grants import granted
from tests.engine.grants.granted import claim_granted, claim_it, unchanged

Another = Callable[[], Awaitable[Connection]]
ACTIVE = "active/not_applicable/none/none/running_attempt → active"
AT_ONCE = given.retrying(9, backoff=FixedBackoff(delay=0))


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await granted.keyed(db)


async def refused(db: Connection, execution_id: ExecutionId, error: Any, **fields: Any) -> Any:
    """The error, after which nothing was written."""
    async with unchanged(db):
        with pytest.raises(error) as told:
            await claim_it(db, execution_id, **fields)
    return told.value


async def test_what_was_granted_is_leased_and_the_grant_is_used_up(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(
        db,
        input_payload=b"in",
        payload_encoding="raw",
        tags={"a.b": "c"},
        deadline=60,
        policy=ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=2.5)),
    )
    await claim_granted(db, execution_id)
    lease_id = uuid4()
    await clock.advance(5)

    task = await claim_it(db, execution_id, lease_id=lease_id, lease_ttl=timedelta(seconds=30))

    now = await clock.now_ms()
    assert await given.standing(db, execution_id) == ACTIVE
    stored = await given.row(db, execution_id)
    assert stored == stored | {
        "attempt_index": 0,
        "attempt_type": "initial",
        "total_attempt_count": 1,
        "lease_reclaim_count": 0,
        "lease_epoch": 1,
        "lease_id": lease_id,
        "lease_expires_at_ms": now + 30_000,
        "worker_id": "w",
        "worker_instance_id": "w-1",
        "started_at_ms": now,
        "attempt_started_at_ms": now,
        "attempt_timeout_at_ms": now + 2500,
        "last_mutation_at_ms": now,
    }
    assert await granted.grants(db) == []
    assert await given.lease_events(db, execution_id) == [("acquired", None)]
    assert await given.completion_events(db, execution_id) == []
    assert await given.attempts(db, execution_id) == []
    assert task.lease == Lease(execution_id, 0, 1, lease_id)
    assert task.lease_expires_at.timestamp() * 1000 == now + 30_000
    assert (task.kind, task.attempt_type) == (LeaseHandleKind.FRESH, AttemptType.INITIAL)
    assert (task.input_payload, task.payload_encoding) == (b"in", "raw")
    assert (task.tags, task.execution_kind, task.lane_id) == ({"a.b": "c"}, "job", "default")
    assert (task.attempt_timeout, task.deadline) == (2.5, 55.0)


async def test_the_handle_is_what_a_remote_holder_acts_with(db: Connection) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id)

    task = await claim_it(db, execution_id, lease_ttl=12.5)
    handle = LeaseHandle.decode(task.handle.encode())

    assert handle == task.handle
    assert (handle.lease, handle.lease_ttl) == (task.lease, 12.5)
    assert (handle.lane_id, handle.worker_instance_id) == ("default", "w-1")
    assert handle.attempt_id == attempt_id(execution_id, 0)
    [answer] = await complete(db, [Completion(handle.lease)])
    assert isinstance(answer, Completed)


async def test_another_process_of_the_worker_may_use_its_grant(db: Connection) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id)

    task = await claim_it(db, execution_id, worker_instance_id="w-9")

    assert task.worker_instance_id == "w-9"


async def test_a_retry_is_a_new_attempt(db: Connection) -> None:
    lease = await given.claimed(db, policy=AT_ONCE)
    await fail(db, [Failure(lease=lease, reason="boom")])
    await claim_granted(db, lease.execution_id)

    task = await claim_it(db, lease.execution_id, expected_attempt_index=1)

    assert (task.attempt_type, task.total_attempt_count) == (AttemptType.RETRY, 2)
    assert (task.lease.attempt_index, task.lease.lease_epoch) == (1, 2)


@pytest.mark.parametrize("way", ["by name", "plain"])
async def test_a_replay_makes_its_attempt_again_and_counts_no_other(
    db: Connection, way: str
) -> None:
    lease = await given.claimed(db)
    await complete(db, [Completion(lease)])
    await replay_execution(db, lease.execution_id)
    await claim_granted(db, lease.execution_id)

    if way == "plain":
        [task] = await claim(db, given.WORKER, ttl=30)
    else:
        task = await claim_it(db, lease.execution_id)

    assert (task.attempt_type, task.total_attempt_count) == (AttemptType.REPLAY, 1)
    assert task.lease.attempt_index == 0
    assert task.lease.lease_epoch > lease.lease_epoch


@pytest.mark.parametrize("timeout", [1.5, timedelta(seconds=1.5)])
async def test_the_time_of_the_attempt_may_be_given(
    db: Connection, clock: Clock, timeout: Any
) -> None:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=60))
    execution_id = await given.created(db, policy=policy)
    await claim_granted(db, execution_id)

    task = await claim_it(db, execution_id, attempt_timeout=timeout)

    assert task.attempt_timeout == 1.5
    stored = await given.row(db, execution_id)
    assert stored["attempt_timeout_at_ms"] == await clock.now_ms() + 1500


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": "a b"}, "worker_id"),
        ({"worker_instance_id": "a\n"}, "worker_instance_id"),
        ({"lease_ttl": 0}, "lease_ttl"),
        ({"lease_ttl": -1}, "lease_ttl"),
        ({"lease_ttl": float("inf")}, "lease_ttl"),
        ({"attempt_timeout": 0}, "attempt_timeout"),
        ({"expected_attempt_index": -1}, "expected_attempt_index"),
        ({"expected_attempt_index": 2**31}, "expected_attempt_index"),
    ],
)
async def test_the_call_must_make_sense(db: Connection, fields: dict[str, Any], named: str) -> None:
    error = await refused(db, ExecutionId.mint(), ValidationError, **fields)

    assert (error.code, named in error.detail) == ("invalid_input", True)


async def test_an_execution_that_does_not_exist_is_not_found(db: Connection) -> None:
    await refused(db, ExecutionId.mint(), NotFound)


@pytest.mark.parametrize("state", ["active", *controls.TERMINAL])
async def test_what_is_not_runnable_cannot_be_claimed(db: Connection, state: str) -> None:
    execution_id = await controls.execution(db, state)

    error = await refused(db, execution_id, ExecutionNotActive, expected_attempt_index=9)

    stored = await given.row(db, execution_id)
    assert error.lifecycle_phase == stored["lifecycle_phase"]
    assert error.terminal_outcome == stored["terminal_outcome"]
    assert error.lease_epoch == stored["lease_epoch"]
    assert error.attempt_id == attempt_id(execution_id, stored["attempt_index"])


@pytest.mark.parametrize("state", ["delayed", "retrying", "blocked"])
async def test_what_may_not_be_claimed_now_is_not_leaseable(db: Connection, state: str) -> None:
    execution_id = await controls.execution(db, state)

    error = await refused(db, execution_id, ExecutionNotLeaseable, expected_attempt_index=9)

    assert await given.public_state(db, execution_id) in str(error)


async def test_nothing_is_claimed_from_a_lane_that_is_not_active(db: Connection) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id)
    await db.execute("UPDATE ff.lane_registry SET lane_state = 'paused'")

    error = await refused(db, execution_id, ExecutionNotLeaseable)

    assert "paused" in str(error)


async def test_an_interrupted_attempt_is_resumed_not_claimed(db: Connection) -> None:
    lease = await given.claimed(db)
    await release(db, [lease])
    await claim_granted(db, lease.execution_id)

    await refused(db, lease.execution_id, UseClaimResumed, expected_attempt_index=9)


async def test_another_attempt_than_expected_is_not_leaseable(db: Connection) -> None:
    execution_id = await given.created(db)

    error = await refused(db, execution_id, ExecutionNotLeaseable, expected_attempt_index=1)

    assert "attempt 0 is next, not 1" in str(error)


async def test_without_a_grant_nothing_is_claimed_by_name(db: Connection) -> None:
    await refused(db, await given.created(db), InvalidClaimGrant)


async def test_a_grant_is_good_for_its_own_worker_only(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id)

    error = await refused(db, execution_id, InvalidClaimGrant, worker_id="x")
    assert error.worker_id == "x"
    # Nor does it help the other that the grant has run out.
    await clock.advance(60)
    await refused(db, execution_id, InvalidClaimGrant, worker_id="x")


async def test_a_grant_is_over_when_its_instant_has_come(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id, grant_ttl=5)
    await clock.advance(5)

    await refused(db, execution_id, ClaimGrantExpired)


async def test_in_its_last_millisecond_a_grant_counts(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id, grant_ttl=5)
    await clock.advance(4.999)

    await claim_it(db, execution_id)


async def test_a_later_grant_takes_the_place_of_one_that_ran_out(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id, grant_ttl=0.001)
    await clock.advance(0.001)
    await claim_granted(db, execution_id, worker_id="x")

    await refused(db, execution_id, InvalidClaimGrant)
    await claim_it(db, execution_id, worker_id="x")

    assert await granted.grants(db) == []


async def test_a_grant_to_reclaim_is_none_to_claim(db: Connection, clock: Clock) -> None:
    lease = await granted.lost(db, clock, policy=AT_ONCE)
    await granted.reclaim_granted(db, lease.execution_id)
    await expire_leases(db, limit=10)
    await db.execute("UPDATE ff.exec_core SET attempt_state = 'pending_retry_attempt'")

    await refused(db, lease.execution_id, InvalidClaimGrant)


async def test_of_two_claimers_with_one_grant_one_wins(db: Connection, another: Another) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id)
    first, second = await another(), await another()
    async with first.transaction():
        won = await claim_execution(
            first,
            execution_id,
            worker_id="w",
            worker_instance_id="w-1",
            expected_attempt_index=0,
            lease_ttl=30,
        )
        call = claim_it(second, execution_id, worker_instance_id="w-2")
        waiting = await given.blocked(db, second, call)

    with pytest.raises(ExecutionNotActive):
        await waiting
    stored = await given.row(db, execution_id)
    assert (stored["lease_id"], stored["lease_epoch"]) == (won.lease.lease_id, 1)
    assert await given.lease_events(db, execution_id) == [("acquired", None)]


async def test_a_claim_that_is_undone_leaves_the_grant_to_the_next(
    db: Connection, another: Another
) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id)
    first, second = await another(), await another()
    undone = first.transaction()
    await undone.start()
    await claim_execution(
        first,
        execution_id,
        worker_id="w",
        worker_instance_id="w-1",
        expected_attempt_index=0,
        lease_ttl=30,
    )
    waiting = await given.blocked(db, second, claim_it(second, execution_id))
    await undone.rollback()

    assert (await waiting).lease.lease_epoch == 1


async def test_a_plain_claim_of_the_same_worker_may_be_first(
    db: Connection, another: Another
) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id)
    first, second = await another(), await another()
    async with first.transaction():
        [task] = await claim(first, given.WORKER, ttl=30)
        waiting = await given.blocked(db, second, claim_it(second, execution_id))

    with pytest.raises(ExecutionNotActive):
        await waiting
    assert (await given.row(db, execution_id))["lease_id"] == task.lease.lease_id


async def test_a_plain_claim_passes_over_a_row_that_is_claimed_by_name(
    db: Connection, another: Another
) -> None:
    execution_id = await given.created(db)
    await claim_granted(db, execution_id)
    first = await another()
    stranger = Claimant(worker_id="x", worker_instance_id="x-1", lanes=("default",))
    async with first.transaction():
        await claim_it(first, execution_id)
        assert await claim(db, stranger, ttl=30) == []
        assert await claim(db, given.WORKER, ttl=30) == []
