"""A request to suspend that is refused: by the first check that fails, with nothing written."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.conditions import AllConditions, Single, TimeoutOnly
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.suspensions.close_waitpoint import close_waitpoint
from flowfabric.engine.suspensions.suspension import Fresh, Suspended, SuspendRequest, UsePending
from flowfabric.errors import (
    AlreadySuspended,
    ExecutionNotActive,
    LeaseExpired,
    NotFound,
    PendingWaitpointExpired,
    StaleLease,
    ValidationError,
    WaitpointAlreadyExists,
    WaitpointNotFound,
    WaitpointNotPending,
)
from flowfabric.ids import ExecutionId
from flowfabric.policy import FixedBackoff
from flowfabric.testing import Clock
from tests import given
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import ask, handler, pending, suspend_all


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await parked.keyed(db)


async def refused(db: Connection, request: SuspendRequest) -> Any:
    """The refusal, after which nothing was written."""
    before = await given.everything(db)
    [answer] = await suspend_all(db, [request])
    assert isinstance(answer, Exception), answer
    assert await given.everything(db) == before
    return answer


def using(lease: Lease, *ids: Any, **fields: Any) -> SuspendRequest:
    bindings = tuple(UsePending(waitpoint_id=each) for each in ids)
    fields.setdefault("condition", Single("approval"))
    return SuspendRequest(lease=lease, bindings=bindings, **fields)


# The timeout.


async def test_a_timeout_may_be_ten_minutes_ago_and_no_more(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    now = await clock.now()

    late = await refused(db, ask(lease, timeout_at=now - timedelta(minutes=10, milliseconds=1)))

    assert isinstance(late, ValidationError)
    assert late.detail.startswith("timeout_at_in_past")
    assert late.field == "timeout_at"
    await parked.suspended(db, ask(lease, timeout_at=now - timedelta(minutes=10)))


async def test_the_timeout_of_a_handler_may_be_long_past(db: Connection, clock: Clock) -> None:
    """A worker that was frozen asks for a wait that is over: the sweep resumes the handler."""
    past = await clock.now() - timedelta(days=1)

    await parked.suspended(
        db, handler(await given.claimed(db), condition=TimeoutOnly(), timeout_at=past)
    )


# The fence.


async def gone(db: Connection, clock: Clock) -> Lease:
    return msgspec.structs.replace(await given.claimed(db), execution_id=ExecutionId.mint())


async def of_a_later_attempt(db: Connection, clock: Clock) -> Lease:
    return msgspec.structs.replace(await given.claimed(db), attempt_index=1)


async def forged(db: Connection, clock: Clock) -> Lease:
    return msgspec.structs.replace(await given.claimed(db), lease_id=uuid4())


async def superseded(db: Connection, clock: Clock) -> Lease:
    lease = await given.claimed(db, policy=given.retrying(backoff=FixedBackoff(delay=0)))
    await fail(db, [Failure(lease=lease, reason="boom")])
    await parked.taken_up(db, lease.execution_id)
    return lease


async def expired(db: Connection, clock: Clock) -> Lease:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(30)
    return lease


async def swept(db: Connection, clock: Clock) -> Lease:
    lease = await expired(db, clock)
    await expire_leases(db, 10)
    return lease


async def cancelled(db: Connection, clock: Clock) -> Lease:
    lease = await given.claimed(db)
    await cancel_execution(db, lease.execution_id, reason="no")
    return lease


async def suspended(db: Connection, clock: Clock) -> Lease:
    return (await parked.parked(db)).lease


@pytest.mark.parametrize(
    ("begin", "error", "code"),
    [
        (gone, NotFound, "execution_not_found"),
        (of_a_later_attempt, NotFound, "attempt_not_found"),
        (forged, StaleLease, "stale_lease"),
        (superseded, StaleLease, "stale_lease"),
        (expired, LeaseExpired, "lease_expired"),
        (swept, ExecutionNotActive, "execution_not_active"),
        (cancelled, ExecutionNotActive, "execution_not_active"),
        (suspended, AlreadySuspended, "already_suspended"),
    ],
)
async def test_a_caller_that_does_not_hold_the_lease_is_refused(
    db: Connection,
    clock: Clock,
    begin: Callable[[Connection, Clock], Awaitable[Lease]],
    error: type,
    code: str,
) -> None:
    lease = await begin(db, clock)

    answer = await refused(db, using(lease, uuid4()))  # before the waitpoint is looked at

    assert type(answer) is error
    assert answer.code == code
    assert str(lease.execution_id.uuid) in str(answer)


# Keys and waitpoints.


async def test_without_a_key_no_waitpoint_can_be_made(db: Connection) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease)
    await db.execute("DELETE FROM ff.waitpoint_hmac")

    answer = await refused(
        db,
        SuspendRequest(
            lease=lease,
            bindings=(UsePending(waitpoint_id=uuid4()), Fresh(waitpoint_key="b")),
            condition=AllConditions((Single("a"), Single("b"))),
        ),
    )

    assert isinstance(answer, ValidationError)  # before the missing waitpoint
    assert "keystore empty" in answer.detail
    await parked.suspended(db, using(lease, waitpoint.waitpoint_id))


async def test_a_waitpoint_that_is_not_there_is_not_used(db: Connection) -> None:
    missing = uuid4()

    answer = await refused(db, using(await given.claimed(db), missing))

    assert isinstance(answer, WaitpointNotFound)
    assert answer.waitpoint_id == missing


async def test_a_waitpoint_is_used_once(db: Connection) -> None:
    lease = await given.claimed(db)
    used, shut = await pending(db, lease), await pending(db, lease)
    async with db.transaction():
        await close_waitpoint(db, lease.execution_id, shut.waitpoint_id)

    closed = await refused(db, using(lease, shut.waitpoint_id))
    twice = await refused(db, using(lease, used.waitpoint_id, used.waitpoint_id))

    assert (type(closed), closed.state) == (WaitpointNotPending, "closed")
    assert (type(twice), twice.state) == (WaitpointNotPending, "active")
    assert str(shut.waitpoint_id) in str(closed)
    assert str(used.waitpoint_id) in str(twice)


async def test_a_waitpoint_of_another_execution_or_attempt_is_not_used(db: Connection) -> None:
    policy = given.retrying(backoff=FixedBackoff(delay=0))
    one = await given.claimed(db, policy=policy)
    home = one.execution_id.partition_key
    other = await given.claimed(db, execution_id=ExecutionId(home, uuid4()))
    elsewhere, before = await pending(db, other), await pending(db, one)
    await fail(db, [Failure(lease=one, reason="boom")])
    lease = await parked.taken_up(db, one.execution_id)

    for waitpoint in (elsewhere, before):
        answer = await refused(db, using(lease, waitpoint.waitpoint_id))
        assert (type(answer), answer.code) == (ValidationError, "invalid_waitpoint_for_execution")
        assert answer.field == "waitpoint_id"
        assert str(waitpoint.waitpoint_id) in str(answer)
    hers = await refused(db, handler(lease, bindings=using(lease, elsewhere.waitpoint_id).bindings))
    assert hers.code == "invalid_waitpoint_for_execution"


async def test_a_waitpoint_that_has_expired_is_not_used(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease, expires_in=10)
    await clock.advance(10)

    answer = await refused(db, using(lease, waitpoint.waitpoint_id))

    assert isinstance(answer, PendingWaitpointExpired)
    assert answer.waitpoint_id == waitpoint.waitpoint_id


async def test_a_waitpoint_without_a_token_is_not_used(db: Connection) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease)
    await db.execute("UPDATE ff.waitpoint_pending SET token = ''")

    answer = await refused(db, using(lease, waitpoint.waitpoint_id))

    assert (answer.code, answer.field) == ("waitpoint_not_token_bound", "waitpoint_id")
    assert str(waitpoint.waitpoint_id) in str(answer)


async def test_the_key_of_a_pending_waitpoint_must_be_that_of_the_condition(
    db: Connection,
) -> None:
    lease = await given.claimed(db)
    one, two = await pending(db, lease, "a"), await pending(db, lease, "b")

    single = await refused(db, using(lease, two.waitpoint_id, condition=Single("a")))
    both = await refused(
        db,
        using(
            lease,
            one.waitpoint_id,
            two.waitpoint_id,
            condition=AllConditions((Single("a"), Single("c"))),
        ),
    )

    assert single.detail.startswith("waitpoint_key_mismatch")
    assert both.detail.startswith("referenced_waitpoint_key_missing_binding")


async def test_an_id_that_a_waitpoint_has_is_not_given_to_another(db: Connection) -> None:
    leases = [await given.claimed(db) for _ in range(2)]
    home = leases[0].execution_id.partition_key
    third = await given.claimed(db, execution_id=ExecutionId(home, uuid4()))
    taken = (await pending(db, leases[0])).waitpoint_id
    fresh = Fresh(waitpoint_key="approval")

    answer = await refused(
        db, ask(leases[0], bindings=(Fresh(waitpoint_key="approval", waitpoint_id=taken),))
    )
    first, second = await suspend_all(
        db, [ask(each, bindings=(fresh,)) for each in (leases[0], third)]
    )

    assert isinstance(answer, WaitpointAlreadyExists)
    assert isinstance(first, Suspended)
    assert isinstance(second, WaitpointAlreadyExists)
    assert await parked.broken(db) == []


async def test_no_refusal_shows_a_token(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease, expires_in=10)
    digest = waitpoint.token.reveal().partition(":")[2]
    held = await parked.suspended(db, ask(await given.claimed(db)))

    answers = await suspend_all(db, [using(lease, waitpoint.waitpoint_id, uuid4())])

    assert digest not in repr(answers)
    assert held.waitpoint.token.reveal() not in repr(held)
