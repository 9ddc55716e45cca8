"""A call that is repeated after a lost answer gets the first answer again, and writes nothing."""

from datetime import timedelta

import msgspec
import pytest

from flowfabric.conditions import Single
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.suspensions.suspension import (
    Fresh,
    SatisfiedAlready,
    Suspended,
    SuspendRequest,
    UsePending,
)
from flowfabric.errors import AlreadySuspended, StaleLease
from flowfabric.testing import Clock
from tests import given
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import ask, deliver, later, pending, suspend_all


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await parked.keyed(db)


async def again(db: Connection, request: SuspendRequest) -> object:
    """The answer to one more call, which writes nothing."""
    before = await given.everything(db)
    [answer] = await suspend_all(db, [request])
    assert await given.everything(db) == before
    return answer


@pytest.mark.parametrize("idempotency_key", ["k-1", None])
async def test_the_same_request_gets_the_same_answer_tokens_included(
    db: Connection, idempotency_key: str | None
) -> None:
    request = ask(await given.claimed(db), idempotency_key=idempotency_key)

    [first] = await suspend_all(db, [request])

    assert isinstance(first, Suspended)
    assert await again(db, request) == msgspec.structs.replace(first, repeated=True)


async def test_a_key_answers_also_another_request_of_the_execution(db: Connection) -> None:
    lease = await given.claimed(db)
    [first] = await suspend_all(db, [ask(lease, idempotency_key="k-1")])

    other = ask(lease, "elsewhere", idempotency_key="k-1")

    assert await again(db, other) == msgspec.structs.replace(first, repeated=True)


async def test_a_key_belongs_to_one_execution(db: Connection) -> None:
    one, two = [await given.claimed(db) for _ in range(2)]
    requests = [ask(one, idempotency_key="k-1"), ask(two, idempotency_key="k-1")]

    first, second = await suspend_all(db, requests)

    assert (first.execution_id, second.execution_id) == (one.execution_id, two.execution_id)
    assert not second.repeated


async def test_a_key_answers_after_the_resume_and_the_next_claim_too(
    db: Connection, ff_engine: Engine
) -> None:
    request = ask(await given.claimed(db), idempotency_key="k-1")
    [first] = await suspend_all(db, [request])
    repeated = msgspec.structs.replace(first, repeated=True)
    await ff_engine.resume_execution(request.lease.execution_id)
    assert await again(db, request) == repeated

    await parked.taken_up(db, request.lease.execution_id)

    assert await again(db, request) == repeated


async def test_without_a_key_the_id_of_the_suspension_answers_until_the_next_claim(
    db: Connection, ff_engine: Engine
) -> None:
    request = ask(await given.claimed(db))
    [first] = await suspend_all(db, [request])
    repeated = msgspec.structs.replace(first, repeated=True)
    await ff_engine.resume_execution(request.lease.execution_id)
    assert await again(db, request) == repeated

    await parked.taken_up(db, request.lease.execution_id)

    assert isinstance(await again(db, request), StaleLease)


async def test_one_that_was_cancelled_meanwhile_had_been_suspended(db: Connection) -> None:
    request = ask(await given.claimed(db))
    [first] = await suspend_all(db, [request])
    await cancel_execution(db, request.lease.execution_id, reason="no")

    assert await again(db, request) == msgspec.structs.replace(first, repeated=True)


async def test_another_suspension_of_a_suspended_execution_is_no_repetition(
    db: Connection,
) -> None:
    held = await parked.parked(db)

    assert isinstance(await again(db, ask(held.lease)), AlreadySuspended)
    assert isinstance(
        await again(db, ask(held.lease, idempotency_key="never used")), AlreadySuspended
    )


@pytest.mark.parametrize("idempotency_key", ["k-1", None])
async def test_an_execution_that_had_nothing_to_wait_for_is_told_so_again(
    db: Connection, idempotency_key: str | None
) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease, "a")
    await deliver(db, lease.execution_id, waitpoint)
    request = ask(
        lease,
        bindings=(UsePending(waitpoint_id=waitpoint.waitpoint_id),),
        condition=Single("a"),
        idempotency_key=idempotency_key,
    )

    [first] = await suspend_all(db, [request])

    assert isinstance(first, SatisfiedAlready)
    assert await again(db, request) == msgspec.structs.replace(first, repeated=True)


@pytest.mark.parametrize(
    ("timeout", "kept"),
    [(None, timedelta(days=7)), (60, timedelta(seconds=120)), (10**9, timedelta(days=7))],
)
async def test_an_answer_is_kept_until_a_minute_after_the_timeout_or_a_week(
    db: Connection, clock: Clock, timeout: int | None, kept: timedelta
) -> None:
    lease = await given.claimed(db)
    until = None if timeout is None else await later(clock, timeout)
    request = ask(lease, idempotency_key="k-1", timeout_at=until)
    await suspend_all(db, [request])

    [row] = await db.fetch("SELECT * FROM ff.suspend_dedup")

    assert row["expires_at_ms"] - row["created_at_ms"] == kept.total_seconds() * 1000
    await clock.advance(kept)
    other = ask(lease, idempotency_key="k-1")  # the answer has expired: the fence decides
    assert isinstance(await again(db, other), AlreadySuspended)


async def test_no_token_is_kept_with_the_answer(db: Connection) -> None:
    held = await parked.parked(db, idempotency_key="k-1")

    [row] = await db.fetch("SELECT outcome::text FROM ff.suspend_dedup")

    assert msgspec.json.decode(row["outcome"]) == {
        "satisfied": False,
        "suspension_id": str(held.answer.suspension_id),
        "waitpoints": [str(held.waitpoint.waitpoint_id)],
    }
    assert held.waitpoint.token.reveal() not in row["outcome"]


async def test_a_new_suspension_takes_the_place_of_the_last(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    held = await parked.parked(db, timeout_at=await later(clock, 60))
    await deliver(db, held.id, held.waitpoint)
    lease = await parked.taken_up(db, held.id)
    await clock.advance(5)

    [answer] = await suspend_all(db, [ask(lease, bindings=(Fresh(waitpoint_key="approval"),))])

    assert isinstance(answer, Suspended)
    stored = await parked.suspension(db, held.id)
    assert stored == stored | {
        "suspension_id": answer.suspension_id,
        "suspended_at_ms": await clock.now_ms(),
        "timeout_at_ms": None,
        "satisfied_at_ms": None,
        "closed_at_ms": None,
        "close_reason": None,
        "closer_signal_id": None,
        "all_satisfier_signals": None,
    }
    states = [each["state"] for each in await parked.waitpoints(db, held.id)]
    assert sorted(states) == ["active", "closed"]
    assert await parked.broken(db) == []
