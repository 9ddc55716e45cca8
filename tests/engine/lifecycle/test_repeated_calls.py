"""A call repeated by the same holder after a lost answer: the first answer, and nothing twice."""

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.cancel import Cancellation, Cancelled, cancel
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest, delay
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.lifecycle.release import Released, release
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import ExecutionNotActive, StaleLease
from flowfabric.policy import ExecutionPolicy, FixedBackoff
from flowfabric.testing import Clock
from tests import given
from tests.engine.lifecycle.fenced import OPERATIONS


def other_lease(lease: Lease) -> Lease:
    return msgspec.structs.replace(lease, lease_id=uuid4())


def older_epoch(lease: Lease) -> Lease:
    return msgspec.structs.replace(lease, lease_epoch=lease.lease_epoch - 1)


async def test_complete_again_is_completed_again(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    [first] = await complete(db, [Completion(lease, b"42")])
    await clock.advance(3600)
    before = await given.everything(db)

    [again] = await complete(db, [Completion(lease, b"another result")])

    assert first == Completed(execution_id=lease.execution_id)
    assert again == Completed(execution_id=lease.execution_id, repeated=True)
    assert await given.everything(db) == before


async def test_cancel_again_is_cancelled_again(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    [first] = await cancel(db, [Cancellation(lease, "why")])
    await clock.advance(3600)
    before = await given.everything(db)

    [again] = await cancel(db, [Cancellation(lease, "another reason")])

    assert first == Cancelled(execution_id=lease.execution_id)
    assert again == Cancelled(execution_id=lease.execution_id, repeated=True)
    assert await given.everything(db) == before


async def test_a_holder_whose_execution_was_cancelled_may_cancel_it_too(db: Connection) -> None:
    lease = await given.claimed(db)
    await cancel_execution(db, lease.execution_id, reason="operator says so")
    before = await given.everything(db)

    [answer] = await cancel(db, [Cancellation(lease, "me too")])

    assert answer == Cancelled(execution_id=lease.execution_id, repeated=True)
    assert await given.everything(db) == before


async def test_fail_for_good_again_is_failed_again(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    [first] = await fail(db, [Failure(lease=lease, reason="boom")])
    await clock.advance(3600)
    before = await given.everything(db)

    [again] = await fail(db, [Failure(lease=lease, reason="another reason")])

    assert first == TerminalFailed(execution_id=lease.execution_id, max_attempts=1)
    assert again == TerminalFailed(execution_id=lease.execution_id, repeated=True)
    assert await given.everything(db) == before


async def test_a_retry_again_answers_the_stored_moment(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    [first] = await fail(db, [Failure(lease=lease, reason="boom")])
    await clock.advance(0.5)
    before = await given.everything(db)

    [again] = await fail(db, [Failure(lease=lease, reason="boom", retry_after=99)])

    assert isinstance(first, RetryScheduled)
    assert first.delay_until is not None
    assert (first.next_attempt_index, first.repeated) == (1, False)
    assert again == msgspec.structs.replace(first, max_attempts=None, repeated=True)
    assert await given.everything(db) == before


async def test_a_retry_that_is_due_at_once_is_answered_again(db: Connection) -> None:
    policy = given.retrying(backoff=FixedBackoff(delay=0))
    lease = await given.claimed(db, policy=policy)
    [first] = await fail(db, [Failure(lease=lease, reason="boom")])

    [again] = await fail(db, [Failure(lease=lease, reason="boom")])

    assert again == RetryScheduled(
        execution_id=lease.execution_id, delay_until=None, next_attempt_index=1, repeated=True
    )
    assert isinstance(first, RetryScheduled)
    assert (await given.row(db, lease.execution_id))["retry_count"] == 1


async def test_a_retry_that_was_promoted_is_answered_again(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await fail(db, [Failure(lease=lease, reason="boom")])
    await clock.advance(1)
    await promote_due(db, limit=10)
    before = await given.everything(db)

    [again] = await fail(db, [Failure(lease=lease, reason="boom")])

    assert isinstance(again, RetryScheduled)
    assert again.repeated
    assert again.next_attempt_index == 1
    assert await given.everything(db) == before


async def test_a_retry_that_runs_already_is_somebody_elses(db: Connection) -> None:
    lease = await given.claimed(db, policy=given.retrying(backoff=FixedBackoff(delay=0)))
    await fail(db, [Failure(lease=lease, reason="boom")])
    await claim(db, given.OTHER, ttl=30)
    before = await given.everything(db)

    [again] = await fail(db, [Failure(lease=lease, reason="boom")])

    assert isinstance(again, StaleLease)
    assert await given.everything(db) == before


@pytest.mark.parametrize("name", ["complete", "fail", "fail_retry"])
@pytest.mark.parametrize("wrong", [other_lease, older_epoch])
async def test_only_the_same_lease_is_answered_again(
    db: Connection, name: str, wrong: object
) -> None:
    operation = OPERATIONS[name]
    lease = await given.claimed(db, policy=given.retrying())
    await operation(db, [lease])
    before = await given.everything(db)

    [answer] = await operation(db, [wrong(lease)])  # type: ignore[operator]

    assert isinstance(answer, ExecutionNotActive)
    assert await given.everything(db) == before


async def test_only_the_same_lease_is_told_that_it_cancelled(db: Connection) -> None:
    lease = await given.claimed(db)
    await cancel(db, [Cancellation(lease, "why")])

    [answer] = await cancel(db, [Cancellation(other_lease(lease), "why")])

    assert isinstance(answer, ExecutionNotActive)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (first, second)
        for first, others in {
            "complete": ("fail", "fail_retry", "cancel", "delay", "release"),
            "fail": ("complete", "cancel", "delay", "release"),
            "cancel": ("complete", "fail", "fail_retry", "delay", "release"),
        }.items()
        for second in others
    ],
)
async def test_a_different_call_after_an_end_is_refused(
    db: Connection, first: str, second: str
) -> None:
    lease = await given.claimed(db)
    await OPERATIONS[first](db, [lease])
    before = await given.everything(db)

    [answer] = await OPERATIONS[second](db, [lease])

    assert isinstance(answer, ExecutionNotActive)
    assert answer.lifecycle_phase == "terminal"
    assert await given.everything(db) == before


@pytest.mark.parametrize("second", ["complete", "cancel", "delay", "release"])
async def test_a_different_call_after_a_retry_is_refused(db: Connection, second: str) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    await fail(db, [Failure(lease=lease, reason="boom")])
    before = await given.everything(db)

    [answer] = await OPERATIONS[second](db, [lease])

    assert isinstance(answer, ExecutionNotActive)
    assert await given.everything(db) == before


async def test_a_failure_by_the_cap_on_lost_leases_is_not_the_holders(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, policy=ExecutionPolicy(max_reclaim_count=0))
    await clock.advance(31)
    await expire_leases(db, limit=10)
    assert await given.public_state(db, lease.execution_id) == "failed"

    [answer] = await fail(db, [Failure(lease=lease, reason="boom")])

    assert isinstance(answer, ExecutionNotActive)


@pytest.mark.parametrize("name", ["delay", "release"])
async def test_putting_down_twice_is_refused_the_second_time(db: Connection, name: str) -> None:
    lease = await given.claimed(db)
    await OPERATIONS[name](db, [lease])
    before = await given.everything(db)

    [answer] = await OPERATIONS[name](db, [lease])

    assert isinstance(answer, ExecutionNotActive)
    assert await given.everything(db) == before


@pytest.mark.parametrize("name", ["complete", "fail", "fail_retry", "cancel"])
async def test_one_lease_twice_in_a_batch_is_written_once(db: Connection, name: str) -> None:
    lease = await given.claimed(db, policy=given.retrying())

    answers = await OPERATIONS[name](db, [lease, lease])

    assert len({type(answer) for answer in answers}) == 1
    assert len(await given.lease_events(db, lease.execution_id)) == 2
    assert len(await given.completion_events(db, lease.execution_id)) == (name != "fail_retry")
    assert len(await given.attempts(db, lease.execution_id)) == 1
    stored = await given.row(db, lease.execution_id)
    assert stored["retry_count"] == (name == "fail_retry")


FOR_GOOD: dict[str, Any] = {"reason": "for good", "category": "permanent"}
ONCE_MORE: dict[str, Any] = {"reason": "once more", "category": "flaky"}


@pytest.mark.parametrize("first", [FOR_GOOD, ONCE_MORE], ids=["for good", "once more"])
async def test_the_first_of_two_failures_of_one_lease_in_a_batch_decides_for_both(
    db: Connection, first: dict[str, Any]
) -> None:
    lease = await given.claimed(db, policy=given.retrying())
    second = ONCE_MORE if first is FOR_GOOD else FOR_GOOD

    one, other = await fail(db, [Failure(lease=lease, **first), Failure(lease=lease, **second)])

    assert type(one) is (TerminalFailed if first is FOR_GOOD else RetryScheduled)
    assert other == one
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt["failure_reason"] == first["reason"]
    assert len(await given.lease_events(db, lease.execution_id)) == 2
    assert len(await given.completion_events(db, lease.execution_id)) == (first is FOR_GOOD)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_the_first_of_two_results_of_one_lease_in_a_batch_is_the_result(
    db: Connection, order: tuple[int, int]
) -> None:
    lease = await given.claimed(db)
    results = [b"one", b"other"]

    answers = await complete(db, [Completion(lease, results[n]) for n in order])

    assert answers == [Completed(execution_id=lease.execution_id)] * 2
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt["result"] == results[order[0]]


async def test_the_first_of_two_reasons_to_cancel_one_lease_is_the_reason(db: Connection) -> None:
    lease = await given.claimed(db)

    one, other = await cancel(db, [Cancellation(lease, "one"), Cancellation(lease, "other")])

    assert one == Cancelled(execution_id=lease.execution_id)
    assert other == one
    assert (await given.row(db, lease.execution_id))["cancellation_reason"] == "one"


async def test_the_first_of_two_delays_of_one_lease_is_the_delay(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)

    one, other = await delay(
        db, [DelayRequest(lease=lease, delay=10), DelayRequest(lease=lease, delay=20)]
    )

    assert one == other == Delayed(execution_id=lease.execution_id)
    stored = await given.row(db, lease.execution_id)
    assert stored["delay_until_ms"] == await clock.now_ms() + 10_000


async def test_one_lease_released_twice_in_a_batch_is_released_once(db: Connection) -> None:
    lease = await given.claimed(db)

    answers = await release(db, [lease, lease])

    assert answers == [Released(execution_id=lease.execution_id)] * 2
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "released"),
    ]


async def test_a_lease_between_two_calls_of_another_is_answered_in_its_place(
    db: Connection,
) -> None:
    twice, once = await given.claimed(db), await given.claimed(db)

    answers = await complete(
        db, [Completion(twice, b"1"), Completion(once, b"2"), Completion(twice, b"3")]
    )

    assert [answer.execution_id for answer in answers] == [  # type: ignore[union-attr]
        twice.execution_id,
        once.execution_id,
        twice.execution_id,
    ]
