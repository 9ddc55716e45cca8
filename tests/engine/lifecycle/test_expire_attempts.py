"""active → runnable or terminal(expired): attempts that took too long."""

from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.expire_attempts import expire_attempts
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.errors import ExecutionNotActive
from flowfabric.policy import ExecutionPolicy, FixedBackoff, RetryPolicy, TimeoutPolicy
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]


def limited(max_retries: int | None = None, **fields: object) -> ExecutionPolicy:
    """Ten seconds an attempt."""
    return ExecutionPolicy(
        timeout_policy=TimeoutPolicy(attempt_timeout=10),
        retry_policy=None
        if max_retries is None
        else RetryPolicy(max_retries=max_retries, **fields),  # type: ignore[arg-type]
    )


async def test_an_attempt_that_takes_too_long_is_tried_again_after_the_backoff(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=60, policy=limited(2))
    began = await clock.now_ms()
    await clock.advance(10)

    assert await expire_attempts(db, limit=10) == 1

    assert await given.standing(db, lease.execution_id) == (
        "runnable/not_eligible_until_time/waiting_for_retry_backoff/none/pending_retry_attempt"
        " → delayed"
    )
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "attempt_index": 1,
        "retry_count": 1,
        "total_attempt_count": 1,
        "lease_reclaim_count": 0,
        "delay_until_ms": now + 1000,
        "attempt_timeout_at_ms": None,
        "failure_reason": "attempt_timeout",
        "worker_instance_id": None,
        "last_mutation_at_ms": now,
    }
    assert stored["lease_epoch"] > lease.lease_epoch
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("expired", None),
    ]
    assert await given.completion_events(db, lease.execution_id) == []
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "attempt_index": 0,
        "outcome": "retry",
        "failure_reason": "attempt_timeout",
        "started_at_ms": began,
        "ended_at_ms": now,
    }


@pytest.mark.parametrize("max_retries", [None, 0], ids=["no policy", "no retries"])
async def test_without_retries_left_the_execution_expires(
    db: Connection, clock: Clock, max_retries: int | None
) -> None:
    lease = await given.claimed(db, ttl=60, policy=limited(max_retries))
    began = await clock.now_ms()
    await clock.advance(10)

    assert await expire_attempts(db, limit=10) == 1

    assert await given.standing(db, lease.execution_id) == (
        "terminal/not_applicable/none/expired/attempt_terminal → expired"
    )
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "failure_reason": "attempt_timeout",
        "terminal_at_ms": now,
        "last_mutation_at_ms": now,
        "attempt_timeout_at_ms": None,
        "worker_instance_id": None,
    }
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("expired", None),
    ]
    assert await given.completion_events(db, lease.execution_id) == ["expired"]
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "outcome": "expired",
        "failure_reason": "attempt_timeout",
        "started_at_ms": began,
        "ended_at_ms": now,
    }


async def test_a_retry_without_delay_is_claimable_at_once(db: Connection, clock: Clock) -> None:
    policy = limited(1, backoff=FixedBackoff(delay=0))
    lease = await given.claimed(db, ttl=60, policy=policy)
    await clock.advance(10)

    await expire_attempts(db, limit=10)

    assert await given.standing(db, lease.execution_id) == (
        "runnable/eligible_now/waiting_for_worker/none/pending_retry_attempt → waiting"
    )


async def test_retries_are_counted_not_attempts(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=60, policy=limited(1))
    await clock.advance(10)
    await expire_attempts(db, limit=10)
    await clock.advance(1)
    await promote_due(db, limit=10)
    [task] = await claim(db, given.WORKER, ttl=60)
    await clock.advance(10)

    await expire_attempts(db, limit=10)

    assert task.lease.attempt_index == 1
    assert await given.public_state(db, lease.execution_id) == "expired"
    assert await given.completion_events(db, lease.execution_id) == ["expired"]


async def test_listed_categories_do_not_matter_to_a_timeout(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=60, policy=limited(1, retryable_categories=("flaky",)))
    await clock.advance(10)

    await expire_attempts(db, limit=10)

    assert await given.public_state(db, lease.execution_id) == "delayed"


async def test_renewing_the_lease_does_not_help(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=6, policy=limited())
    for _ in range(2):
        await clock.advance(5)
        assert await renew(db, [lease], ttl=6) == [None]

    assert await expire_leases(db, limit=10) == 0
    assert await expire_attempts(db, limit=10) == 1


async def test_an_attempt_in_its_last_millisecond_is_left_alone(
    db: Connection, clock: Clock
) -> None:
    await given.claimed(db, ttl=60, policy=limited())
    await clock.advance(9.999)
    before = await given.everything(db)

    assert await expire_attempts(db, limit=10) == 0

    assert await given.everything(db) == before


async def test_a_lease_that_ran_out_is_not_a_timeout(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=5, policy=limited(3))
    await clock.advance(6)

    assert await expire_attempts(db, limit=10) == 0
    assert await expire_leases(db, limit=10) == 1

    stored = await given.row(db, lease.execution_id)
    assert (stored["retry_count"], stored["public_state"]) == (0, "waiting")


@pytest.mark.parametrize("end", ["complete", "fail", "delay", "lease"])
async def test_the_time_of_an_attempt_that_stopped_does_not_run(
    db: Connection, clock: Clock, end: str
) -> None:
    lease = await given.claimed(db, ttl=5, policy=limited(3))
    match end:
        case "complete":
            await complete(db, [Completion(lease)])
        case "fail":
            await fail(db, [Failure(lease=lease, reason="boom")])
        case "delay":
            await delay(db, [DelayRequest(lease=lease, delay=3600)])
        case _:
            await clock.advance(6)
            await expire_leases(db, limit=10)
    await clock.advance(60)
    before = await given.everything(db)

    assert await expire_attempts(db, limit=10) == 0

    assert await given.everything(db) == before


async def test_the_slow_worker_cannot_write_any_more(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=60, policy=limited(1))
    await clock.advance(10)
    await expire_attempts(db, limit=10)
    before = await given.everything(db)

    [done] = await complete(db, [Completion(lease)])
    [failed] = await fail(db, [Failure(lease=lease, reason="boom")])

    assert isinstance(done, ExecutionNotActive)
    assert isinstance(failed, ExecutionNotActive)
    assert await given.everything(db) == before


async def test_the_longest_overdue_go_first_up_to_the_limit(db: Connection, clock: Clock) -> None:
    first = await given.claimed(db, ttl=600, policy=limited())
    await clock.advance(1)
    second = await given.claimed(db, ttl=600, policy=limited())
    await clock.advance(60)

    assert await expire_attempts(db, limit=1) == 1

    assert await given.public_state(db, first.execution_id) == "expired"
    assert await given.public_state(db, second.execution_id) == "active"


async def test_a_row_in_use_is_passed_over(db: Connection, clock: Clock, another: Another) -> None:
    lease = await given.claimed(db, ttl=60, policy=limited())
    other = await another()
    async with other.transaction():
        await complete(other, [Completion(lease)])
        await clock.advance(11)
        assert await expire_attempts(db, limit=10) == 0

    assert await given.completion_events(db, lease.execution_id) == ["success"]
