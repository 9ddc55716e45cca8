"""active → runnable or terminal(failed): leases that ran out."""

import logging
from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import ExecutionNotActive
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]
BACK = "runnable/eligible_now/waiting_for_worker/none/attempt_interrupted → waiting"


async def test_a_lease_that_ran_out_goes_back_to_the_pool(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30, deadline=3600)
    began = await clock.now_ms()
    await clock.advance(30)

    assert await expire_leases(db, limit=10) == 1

    assert await given.standing(db, lease.execution_id) == BACK
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "lease_epoch": lease.lease_epoch + 1,
        "lease_expires_at_ms": None,
        "worker_id": None,
        "worker_instance_id": None,
        "attempt_index": 0,
        "total_attempt_count": 1,
        "retry_count": 0,
        "lease_reclaim_count": 0,
        "delay_until_ms": None,
        "deadline_at_ms": began + 3_600_000,
        "failure_reason": None,
        "last_mutation_at_ms": now,
    }
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("expired", None),
    ]
    told = (await given.lease_history(db, lease.execution_id))[-1]
    assert told == told | {
        "lease_id": lease.lease_id,
        "lease_epoch": lease.lease_epoch,
        "worker_instance_id": "w-1",
    }
    assert await given.completion_events(db, lease.execution_id) == []
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "attempt_index": 0,
        "outcome": "lease_expired_reclaimable",
        "started_at_ms": began,
        "ended_at_ms": now,
        "lease_epoch": lease.lease_epoch,
    }


async def test_a_lease_in_its_last_millisecond_is_left_alone(db: Connection, clock: Clock) -> None:
    await given.claimed(db, ttl=30)
    await clock.advance(29.999)
    before = await given.everything(db)

    assert await expire_leases(db, limit=10) == 0

    assert await given.everything(db) == before


async def test_a_second_sweep_finds_nothing(db: Connection, clock: Clock) -> None:
    await given.claimed(db, ttl=30)
    await clock.advance(30)

    assert [await expire_leases(db, limit=10) for _ in range(2)] == [1, 0]


async def test_what_ended_before_is_left_alone(db: Connection, clock: Clock) -> None:
    done = await given.claimed(db)
    await complete(db, [Completion(done)])
    cancelled = await given.claimed(db)
    await cancel_execution(db, cancelled.execution_id, reason="no")
    await clock.advance(3600)
    before = await given.everything(db)

    assert await expire_leases(db, limit=10) == 0

    assert await given.everything(db) == before


async def test_one_sweep_takes_no_more_than_its_limit(db: Connection, clock: Clock) -> None:
    for _ in range(5):
        await given.created(db)
    await claim(db, given.WORKER, ttl=30, limit=5)
    await clock.advance(31)

    assert [await expire_leases(db, limit=2) for _ in range(4)] == [2, 2, 1, 0]


async def test_leases_that_still_run_do_not_use_up_the_limit(db: Connection, clock: Clock) -> None:
    for _ in range(5):
        await given.claimed(db, ttl=3600)
    lapsed = await given.claimed(db, ttl=1)
    await clock.advance(2)

    assert await expire_leases(db, limit=1) == 1

    assert await given.standing(db, lapsed.execution_id) == BACK


async def test_a_row_in_use_is_passed_over(db: Connection, clock: Clock, another: Another) -> None:
    first = await given.claimed(db, ttl=1)
    second = await given.claimed(db, ttl=1)
    await clock.advance(2)
    other = await another()
    async with other.transaction():
        await other.execute(
            "SELECT FROM ff.exec_core WHERE execution_id = $1 FOR UPDATE",
            first.execution_id.uuid,
        )
        assert await expire_leases(db, limit=10) == 1

    assert await given.public_state(db, first.execution_id) == "active"
    assert await given.public_state(db, second.execution_id) == "waiting"


async def test_a_renewal_that_holds_the_row_saves_the_lease(
    db: Connection, clock: Clock, another: Another
) -> None:
    lease = await given.claimed(db, ttl=30)
    other = await another()
    async with other.transaction():
        assert await renew(other, [lease], ttl=30) == [None]
        await clock.advance(31)
        assert await expire_leases(db, limit=10) == 0

    assert (await given.row(db, lease.execution_id))["lease_epoch"] == lease.lease_epoch


async def test_a_completion_that_holds_the_row_wins_over_the_sweep(
    db: Connection, clock: Clock, another: Another
) -> None:
    lease = await given.claimed(db, ttl=30)
    other = await another()
    async with other.transaction():
        assert await complete(other, [Completion(lease)]) == [
            Completed(execution_id=lease.execution_id)
        ]
        await clock.advance(31)
        assert await expire_leases(db, limit=10) == 0

    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "completed"),
    ]


async def test_the_dead_worker_cannot_write_after_the_sweep(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(31)
    await expire_leases(db, limit=10)
    before = await given.everything(db)

    [refused] = await complete(db, [Completion(lease, b"late")])

    assert isinstance(refused, ExecutionNotActive)
    assert refused.lease_epoch == lease.lease_epoch + 1
    assert await given.everything(db) == before


async def lose(db: Connection, clock: Clock) -> None:
    await clock.advance(31)
    assert await expire_leases(db, limit=10) == 1


@pytest.mark.parametrize("cap", [0, 1, 2])
@pytest.mark.parametrize("place", ["policy", "timeout_policy"])
async def test_leases_are_recovered_from_as_often_as_the_cap_says(
    db: Connection, clock: Clock, cap: int, place: str
) -> None:
    policy = (
        ExecutionPolicy(max_reclaim_count=cap)
        if place == "policy"
        else ExecutionPolicy(timeout_policy=TimeoutPolicy(max_reclaim_count=cap))
    )
    lease = await given.claimed(db, ttl=30, policy=policy)
    for count in range(1, cap + 1):
        await lose(db, clock)
        [task] = await claim(db, given.WORKER, ttl=30)
        stored = await given.row(db, lease.execution_id)
        assert stored["lease_reclaim_count"] == count
        lease = task.lease

    await lose(db, clock)

    assert await given.standing(db, lease.execution_id) == (
        "terminal/not_applicable/none/failed/attempt_terminal → failed"
    )
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "failure_reason": "max_reclaims_exceeded",
        "lease_reclaim_count": cap,
        "lease_epoch": lease.lease_epoch + 1,
        "terminal_at_ms": now,
        "last_mutation_at_ms": now,
        "worker_instance_id": None,
        "lease_expires_at_ms": None,
    }
    assert await given.completion_events(db, lease.execution_id) == ["failed"]
    history = await given.lease_events(db, lease.execution_id)
    assert history == [("acquired", None), ("expired", None)] * (cap + 1)
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "outcome": "failed",
        "failure_reason": "max_reclaims_exceeded",
        "ended_at_ms": now,
    }


@pytest.mark.parametrize(
    ("policy", "cap"),
    [(None, 5), (ExecutionPolicy(), 5), (ExecutionPolicy(max_reclaim_count=100), 100)],
    ids=["no policy", "a policy", "a policy that says so"],
)
async def test_without_a_cap_of_its_own_an_execution_has_the_default(
    db: Connection, clock: Clock, policy: ExecutionPolicy | None, cap: int
) -> None:
    lease = await given.claimed(db, ttl=30, policy=policy)
    # A thousand losses by hand are the same loss a thousand times.
    await db.execute("UPDATE ff.lease SET lease_reclaim_count = $1", cap - 1)
    await lose(db, clock)
    assert await given.public_state(db, lease.execution_id) == "waiting"
    await claim(db, given.WORKER, ttl=30)

    await lose(db, clock)

    stored = await given.row(db, lease.execution_id)
    assert (stored["public_state"], stored["lease_reclaim_count"]) == ("failed", cap)


async def test_a_sweep_may_end_some_and_return_others(db: Connection, clock: Clock) -> None:
    doomed = await given.claimed(db, ttl=30, policy=ExecutionPolicy(max_reclaim_count=0))
    spared = await given.claimed(db, ttl=30)
    await clock.advance(31)

    assert await expire_leases(db, limit=10) == 2

    assert await given.public_state(db, doomed.execution_id) == "failed"
    assert await given.public_state(db, spared.execution_id) == "waiting"


async def test_each_expired_lease_is_logged_with_its_worker_and_what_follows(
    db: Connection, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    policy = ExecutionPolicy(max_reclaim_count=0)
    last = await given.claimed(db, ttl=30, policy=policy)
    lost = await given.claimed(db, ttl=30)
    await clock.advance(30)

    with caplog.at_level(logging.INFO, "flowfabric.worker"):
        await expire_leases(db, limit=10)

    why = "the lease of worker w-1 expired: its process died, hung or lost the database"
    assert {(each.levelname, each.getMessage()) for each in caplog.records} == {
        ("WARNING", f"job {lost.execution_id} attempt 1: {why}; the execution is claimable again"),
        (
            "ERROR",
            f"job {last.execution_id} attempt 1: {why};"
            " the execution has failed: max_reclaims_exceeded",
        ),
    }
    [told] = [vars(each) for each in caplog.records if each.levelname == "WARNING"]
    assert told == told | {
        "event": "lease_expired",
        "execution_id": str(lost.execution_id),
        "kind": "job",
        "attempt": 1,
        "worker": "w-1",
    }
