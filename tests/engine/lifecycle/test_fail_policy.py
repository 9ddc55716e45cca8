"""What a policy says about trying again, and when."""

from typing import Any

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed, fail
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.policy import ExecutionPolicy, ExponentialBackoff, FixedBackoff
from flowfabric.states import FailureClass
from flowfabric.testing import Clock
from tests import given


async def delays(db: Connection, clock: Clock, policy: ExecutionPolicy, count: int) -> list[int]:
    """How long one execution waits before each of its first `count` retries."""
    lease = await given.claimed(db, policy=policy)
    found = []
    for _ in range(count):
        await fail(db, [Failure(lease=lease, reason="boom")])
        until = (await given.row(db, lease.execution_id))["delay_until_ms"]
        found.append(until - await clock.now_ms())
        await clock.advance(found[-1] / 1000)
        assert await promote_due(db, limit=1) == 1
        [task] = await claim(db, given.WORKER, ttl=30)
        lease = task.lease
    return found


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        ({}, [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]),
        ({"backoff": FixedBackoff()}, [1000] * 4),
        ({"backoff": FixedBackoff(delay=0.25)}, [250] * 4),
        (
            {"backoff": ExponentialBackoff(initial_delay=0.1, multiplier=3, max_delay=2)},
            [100, 300, 900, 2000, 2000],
        ),
        (
            {"backoff": ExponentialBackoff(initial_delay=0.007, multiplier=1.5)},
            [7, 10, 15, 23, 35],  # truncated
        ),
        ({"backoff": ExponentialBackoff(initial_delay=5, max_delay=0.1)}, [100, 100]),
        ({"backoff": ExponentialBackoff(multiplier=1)}, [1000] * 4),
    ],
)
async def test_waits_grow_as_the_policy_says(
    db: Connection, clock: Clock, backoff: dict[str, Any], expected: list[int]
) -> None:
    policy = given.retrying(20, **backoff)

    assert await delays(db, clock, policy, len(expected)) == expected


@pytest.mark.parametrize("retry_count", [63, 64, 65, 1000, 2**31 - 1])
async def test_the_wait_is_bounded_however_many_retries_there_were(
    db: Connection, retry_count: int
) -> None:
    growing = ExponentialBackoff(initial_delay=10**9, multiplier=1000, max_delay=10**9)
    policies = [given.retrying(), given.retrying(backoff=growing)]

    waits = [
        await db.fetchval(
            "SELECT ff.retry_delay_ms($1, $2, gen_random_uuid())",
            policy.as_json().decode(),
            retry_count,
        )
        for policy in policies
    ]

    assert waits == [60_000, 10**12]


@pytest.mark.parametrize(
    ("backoff", "wait"),
    [
        (None, 1000),
        ({"type": "fixed"}, 1000),
        ({"type": "exponential"}, 1000),
        ({"type": "unheard-of", "delay_ms": 5}, 1000),
        ({"delay_ms": 5}, 1000),
        ({}, 1000),
    ],
)
async def test_what_a_stored_backoff_leaves_out_has_its_default(
    db: Connection, backoff: object, wait: int
) -> None:
    policy = {"retry_policy": {} if backoff is None else {"backoff": backoff}}

    found = await db.fetchval(
        "SELECT ff.retry_delay_ms($1, 0, gen_random_uuid())",
        msgspec.json.encode(policy).decode(),
    )

    assert found == wait


async def test_jitter_spreads_waits_between_half_and_whole(db: Connection, clock: Clock) -> None:
    policy = given.retrying(backoff=ExponentialBackoff(initial_delay=10, jitter=True))
    await create_execution(db, [given.new(policy=policy) for _ in range(200)])
    tasks = await claim(db, given.WORKER, ttl=30, limit=200)

    await fail(db, [Failure(lease=task.lease, reason="boom") for task in tasks])

    now = await clock.now_ms()
    waits = [
        record["delay_until_ms"] - now
        for record in await db.fetch("SELECT delay_until_ms FROM ff.execution")
    ]
    assert len(waits) == 200
    assert min(waits) >= 5000
    assert max(waits) <= 10_000
    assert min(waits) < 6000
    assert max(waits) > 9000
    assert len(set(waits)) > 150


async def test_jitter_is_opt_in(db: Connection, clock: Clock) -> None:
    await create_execution(db, [given.new(policy=given.retrying()) for _ in range(20)])
    tasks = await claim(db, given.WORKER, ttl=30, limit=20)

    await fail(db, [Failure(lease=task.lease, reason="boom") for task in tasks])

    found = await db.fetch("SELECT DISTINCT delay_until_ms FROM ff.execution")
    assert [record[0] for record in found] == [await clock.now_ms() + 1000]


@pytest.mark.parametrize(
    ("failure_class", "retried"),
    [
        (FailureClass.TRANSIENT, True),
        (FailureClass.INFRA_CRASH, True),
        (FailureClass.PERMANENT, False),
        (FailureClass.TIMEOUT, False),
        (FailureClass.CANCELLED, False),
    ],
)
async def test_only_transient_failures_and_crashes_are_tried_again(
    db: Connection, failure_class: FailureClass, retried: bool
) -> None:
    stated = await given.claimed(db, policy=given.retrying())
    named = await given.claimed(db, policy=given.retrying())

    answers = await fail(
        db,
        [
            Failure(lease=stated, reason="boom", category="my_own", failure_class=failure_class),
            Failure(lease=named, reason="boom", category=failure_class.value),
        ],
    )

    expected = RetryScheduled if retried else TerminalFailed
    assert [type(answer) for answer in answers] == [expected, expected]


@pytest.mark.parametrize(
    ("listed", "category", "failure_class", "retried"),
    [
        ((), "anything", None, True),
        (("flaky",), "flaky", None, True),
        (("flaky", "busy"), "busy", FailureClass.INFRA_CRASH, True),
        (("flaky",), "busy", None, False),
        (("flaky",), "Flaky", None, False),
        (("flaky",), "flak", None, False),
        (("flaky",), "flaky", FailureClass.PERMANENT, False),
        (("permanent",), "permanent", None, False),
        (("transient",), "transient", None, True),
    ],
)
async def test_only_listed_categories_are_tried_again(
    db: Connection,
    listed: tuple[str, ...],
    category: str,
    failure_class: FailureClass | None,
    retried: bool,
) -> None:
    policy = given.retrying(retryable_categories=listed)
    lease = await given.claimed(db, policy=policy)

    [answer] = await fail(
        db,
        [Failure(lease=lease, reason="boom", category=category, failure_class=failure_class)],
    )

    assert isinstance(answer, RetryScheduled if retried else TerminalFailed)


async def test_the_policy_of_the_creation_is_the_policy_of_every_attempt(
    db: Connection, clock: Clock
) -> None:
    policy = given.retrying(1, backoff=FixedBackoff(delay=0.005))
    execution_id = await given.created(db, policy=policy, idempotency_key="k")
    await create_execution(db, [given.new(policy=given.retrying(9), idempotency_key="k")])
    [task] = await claim(db, given.WORKER, ttl=30)
    await fail(db, [Failure(lease=task.lease, reason="boom")])
    await clock.advance(0.005)
    await promote_due(db, limit=1)
    [task] = await claim(db, given.WORKER, ttl=30)

    [answer] = await fail(db, [Failure(lease=task.lease, reason="boom")])

    assert answer == TerminalFailed(execution_id=execution_id, max_attempts=2)
