"""runnable → active."""

from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release import release
from flowfabric.errors import ValidationError
from flowfabric.policy import ExecutionPolicy, FixedBackoff, TimeoutPolicy
from flowfabric.states import AttemptType
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases

ACTIVE = "active/not_applicable/none/none/running_attempt → active"
AT_ONCE = given.retrying(9, backoff=FixedBackoff(delay=0))


async def test_a_claimed_execution_is_active_and_leased(db: Connection, clock: Clock) -> None:
    created_at = await clock.now_ms()
    execution_id = await given.created(db)
    await clock.advance(5)

    [task] = await claim(db, given.WORKER, ttl=30)

    assert await given.standing(db, execution_id) == ACTIVE
    stored, now = await given.row(db, execution_id), await clock.now_ms()
    assert stored == stored | {
        "ownership_state": "leased",
        "attempt_index": 0,
        "attempt_type": "initial",
        "total_attempt_count": 1,
        "retry_count": 0,
        "lease_reclaim_count": 0,
        "lease_epoch": 1,
        "lease_id": task.lease.lease_id,
        "lease_expires_at_ms": now + 30_000,
        "worker_id": "w",
        "worker_instance_id": "w-1",
        "created_at_ms": created_at,
        "started_at_ms": now,
        "attempt_started_at_ms": now,
        "attempt_timeout_at_ms": None,
        "last_mutation_at_ms": now,
        "delay_until_ms": None,
    }
    assert await given.lease_events(db, execution_id) == [("acquired", None)]
    assert await given.completion_events(db, execution_id) == []
    assert await given.attempts(db, execution_id) == []


async def test_a_claim_answers_what_is_needed_to_run(db: Connection, clock: Clock) -> None:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=2.5))
    execution_id = await given.created(
        db,
        input_payload=b"in",
        payload_encoding="raw",
        tags={"a.b": "c"},
        policy=policy,
        deadline=60,
    )
    await clock.advance(10)

    [task] = await claim(db, given.WORKER, ttl=30)

    assert msgspec.structs.asdict(task) == {
        "lease": task.lease,
        "lane_id": "default",
        "execution_kind": "job",
        "input_payload": b"in",
        "payload_encoding": "raw",
        "tags": {"a.b": "c"},
        "attempt_type": AttemptType.INITIAL,
        "total_attempt_count": 1,
        "attempt_timeout": 2.5,
        "deadline": 50.0,
        "claimed_at": await clock.now(),
        "flow_id": None,
        "quota_key_id": None,
        "kind": LeaseHandleKind.FRESH,
    }
    assert task.lease.execution_id == execution_id
    assert (task.lease.attempt_index, task.lease.lease_epoch) == (0, 1)


async def test_the_acquired_event_tells_who_holds_what(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, tags={"cairn.instance_id": "i-1"})

    [event] = await given.lease_history(db, lease.execution_id)
    stored = await given.row(db, lease.execution_id)
    assert event == event | {
        "event_type": "acquired",
        "lease_id": lease.lease_id,
        "lease_epoch": 1,
        "attempt_index": 0,
        "worker_instance_id": "w-1",
        "occurred_at_ms": await clock.now_ms(),
        "partition_key": lease.execution_id.partition_key,
        "route_id": stored["route_id"],
        "tags": '{"cairn.instance_id": "i-1"}',
    }


async def test_one_call_gives_all_its_rows_one_fresh_lease_id(db: Connection) -> None:
    for _ in range(4):
        await given.created(db)

    first = await claim(db, given.WORKER, ttl=30, limit=2)
    second = await claim(db, given.WORKER, ttl=30, limit=2)

    ids = [{task.lease.lease_id for task in tasks} for tasks in (first, second)]
    assert [len(found) for found in ids] == [1, 1]
    assert ids[0] != ids[1]


async def test_a_retry_is_a_new_attempt(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=AT_ONCE)
    started = (await given.row(db, lease.execution_id))["started_at_ms"]
    await clock.advance(5)
    await fail(db, [Failure(lease=lease, reason="boom")])

    [task] = await claim(db, given.OTHER, ttl=30)

    assert await given.standing(db, lease.execution_id) == ACTIVE
    assert (task.attempt_type, task.total_attempt_count) == (AttemptType.RETRY, 2)
    assert (task.lease.attempt_index, task.lease.lease_epoch) == (1, 2)
    stored = await given.row(db, lease.execution_id)
    assert stored == stored | {
        "started_at_ms": started,
        "attempt_started_at_ms": await clock.now_ms(),
        "attempt_type": "retry",
        "total_attempt_count": 2,
        "worker_instance_id": "w-2",
    }
    assert [event for event, _ in await given.lease_events(db, lease.execution_id)] == [
        "acquired",
        "revoked",
        "acquired",
    ]


async def test_a_lost_lease_goes_on_with_the_same_attempt_and_is_counted(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    began = await clock.now_ms()
    await clock.advance(31)
    await expire_leases(db, limit=10)

    [task] = await claim(db, given.OTHER, ttl=30)

    assert await given.standing(db, lease.execution_id) == ACTIVE
    assert (task.attempt_type, task.total_attempt_count) == (AttemptType.INITIAL, 1)
    assert (task.lease.attempt_index, task.kind) == (0, LeaseHandleKind.RESUMED)
    assert task.lease.lease_epoch == lease.lease_epoch + 2
    stored = await given.row(db, lease.execution_id)
    assert stored == stored | {
        "lease_reclaim_count": 1,
        "retry_count": 0,
        "started_at_ms": began,
        "attempt_started_at_ms": began,
    }
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("expired", None),
        ("acquired", None),
    ]


@pytest.mark.parametrize("way", ["delay", "release"])
async def test_an_attempt_that_was_put_down_goes_on_uncounted(
    db: Connection, clock: Clock, way: str
) -> None:
    lease = await given.claimed(db)
    if way == "delay":
        await delay(db, [DelayRequest(lease=lease, delay=1)])
        await clock.advance(1)
        await promote_due(db, limit=10)
    else:
        await release(db, [lease])

    [task] = await claim(db, given.OTHER, ttl=30)

    assert (task.attempt_type, task.total_attempt_count) == (AttemptType.INITIAL, 1)
    assert (task.lease.attempt_index, task.kind) == (0, LeaseHandleKind.RESUMED)
    assert task.lease.lease_epoch > lease.lease_epoch
    stored = await given.row(db, lease.execution_id)
    assert (stored["lease_reclaim_count"], stored["retry_count"]) == (0, 0)


async def test_a_loss_is_counted_by_one_claim_only(db: Connection, clock: Clock) -> None:
    await given.claimed(db, ttl=30)
    await clock.advance(31)
    await expire_leases(db, limit=10)
    [task] = await claim(db, given.WORKER, ttl=30)
    await release(db, [task.lease])

    [again] = await claim(db, given.WORKER, ttl=30)

    stored = await given.row(db, again.lease.execution_id)
    assert stored["lease_reclaim_count"] == 1


async def test_an_interrupted_retry_stays_a_retry(db: Connection) -> None:
    lease = await given.claimed(db, policy=AT_ONCE)
    await fail(db, [Failure(lease=lease, reason="boom")])
    [retry] = await claim(db, given.WORKER, ttl=30)
    await release(db, [retry.lease])

    [task] = await claim(db, given.WORKER, ttl=30)

    assert (task.attempt_type, task.total_attempt_count) == (AttemptType.RETRY, 2)
    assert task.lease.attempt_index == 1


async def test_epochs_only_grow(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=AT_ONCE)
    epochs = [lease.lease_epoch]
    for step in ("fail", "release", "expire", "fail", "release"):
        match step:
            case "fail":
                await fail(db, [Failure(lease=lease, reason="boom")])
            case "release":
                await release(db, [lease])
            case _:
                await clock.advance(31)
                await expire_leases(db, limit=10)
        [task] = await claim(db, given.WORKER, ttl=30)
        lease = task.lease
        epochs.append(lease.lease_epoch)

    assert epochs == sorted(set(epochs))
    assert epochs[0] == 1


async def test_started_at_is_the_first_claim_for_ever(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=AT_ONCE)
    first = await clock.now_ms()
    for _ in range(3):
        await clock.advance(7)
        await fail(db, [Failure(lease=lease, reason="boom")])
        [task] = await claim(db, given.WORKER, ttl=30)
        lease = task.lease

    stored = await given.row(db, lease.execution_id)
    assert stored["started_at_ms"] == first
    assert stored["total_attempt_count"] == 4
    assert stored["attempt_index"] == 3


async def test_the_attempts_time_counts_from_each_claim(db: Connection, clock: Clock) -> None:
    policy = ExecutionPolicy(timeout_policy=TimeoutPolicy(attempt_timeout=60))
    lease = await given.claimed(db, policy=policy)
    stored = await given.row(db, lease.execution_id)
    assert stored["attempt_timeout_at_ms"] == await clock.now_ms() + 60_000
    await clock.advance(20)
    await release(db, [lease])

    [task] = await claim(db, given.WORKER, ttl=30)

    stored = await given.row(db, lease.execution_id)
    assert stored["attempt_timeout_at_ms"] == await clock.now_ms() + 60_000
    assert task.attempt_timeout == 60.0


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_claim_is_for_1_to_1000(db: Connection, limit: int) -> None:
    with pytest.raises(ValidationError, match="limit"):
        await claim(db, given.WORKER, ttl=30, limit=limit)


@pytest.mark.parametrize("ttl", [0, -1, 0.0001])
async def test_a_lease_must_last(db: Connection, ttl: float) -> None:
    await given.created(db)

    with pytest.raises(ValidationError, match="ttl"):
        await claim(db, given.WORKER, ttl=ttl)


@all_cases(
    ("fields", "named"),
    [
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": "a b"}, "worker_id"),
        ({"worker_id": "x" * 257}, "worker_id"),
        ({"worker_instance_id": "a\n"}, "worker_instance_id"),
        ({"worker_instance_id": "a\x00"}, "worker_instance_id"),
        ({"worker_instance_id": "a\ud800"}, "worker_instance_id"),
        ({"lanes": ()}, "lanes"),
        ({"lanes": ("fine", "größe")}, "lane_id"),
        ({"capabilities": ("a,b",)}, "worker:comma_in_token"),
        ({"capabilities": ("",)}, "worker:empty_token"),
    ],
)
async def test_a_claimant_must_make_sense(fields: dict[str, Any], named: str) -> None:
    good = {"worker_id": "w", "worker_instance_id": "w-1", "lanes": ("default",)}

    with pytest.raises(ValidationError, match=named):
        Claimant(**(good | fields))


async def test_nothing_to_claim_is_an_empty_list(db: Connection) -> None:
    assert await claim(db, given.WORKER, ttl=30, limit=10) == []


@pytest.mark.parametrize("ttl", [1, 86_400])
async def test_the_lease_runs_for_its_ttl(db: Connection, clock: Clock, ttl: int) -> None:
    lease = await given.claimed(db, ttl=ttl)

    stored = await given.row(db, lease.execution_id)
    assert stored["lease_expires_at_ms"] == await clock.now_ms() + ttl * 1000
