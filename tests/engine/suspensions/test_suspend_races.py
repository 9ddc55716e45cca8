"""Two connections: what a handler waits for happens while it suspends. No wake-up is lost."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.conditions import AnyCondition, Single
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.joins.dispatch_completions import dispatch_completions
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.suspensions.expire_pending_waitpoints import expire_pending_waitpoints
from flowfabric.engine.suspensions.send_signal import NewSignal, send_signals
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.engine.suspensions.suspension import (
    NothingToSuspendFor,
    SatisfiedAlready,
    Suspended,
    SuspendRequest,
    UsePending,
)
from flowfabric.errors import ExecutionNotActive
from flowfabric.ids import ExecutionId
from flowfabric.joins import AnyOf
from flowfabric.states import SignalEffect
from flowfabric.testing import Clock
from tests import given
from tests.engine.joins.parents import Family, parent
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import deliver, handler, later, pending, suspend_all

Another = Callable[[], Awaitable[Connection]]


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await parked.keyed(db)


async def sent(conn: Connection, execution_id: ExecutionId) -> Any:
    async with conn.transaction():
        [answer] = await send_signals(
            conn, [NewSignal(execution_id=execution_id, signal_name="go")]
        )
        return answer


async def dispatched(conn: Connection) -> int:
    async with conn.transaction():
        return await dispatch_completions(conn)


def for_children(family: Family, *positions: int, **fields: Any) -> SuspendRequest:
    joins = tuple(family.join(position).uuid for position in positions or (0,))
    return handler(family.lease, "go", awaits_joins=joins, **fields)


# Signals by name.


async def test_a_signal_that_comes_first_is_seen_by_the_suspend(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    first, second = await another(), await another()

    async with first.transaction():
        await send_signals(first, [NewSignal(execution_id=lease.execution_id, signal_name="go")])
        asked = await given.blocked(db, second, suspend_all(second, [handler(lease, "go")]))

    assert await asked == [NothingToSuspendFor(execution_id=lease.execution_id)]
    assert await given.public_state(db, lease.execution_id) == "active"


async def test_a_signal_that_comes_second_resumes_the_handler(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    first, second = await another(), await another()

    async with first.transaction():
        [answer] = await suspend(first, [handler(lease, "go")])
        asked = await given.blocked(db, second, sent(second, lease.execution_id))

    assert isinstance(answer, Suspended)
    assert (await asked).effect is SignalEffect.RESUME_CONDITION_SATISFIED
    assert await given.public_state(db, lease.execution_id) == "resumable"
    assert await parked.broken(db) == []


async def test_two_signals_at_once_are_numbered_one_after_the_other(
    db: Connection, another: Another
) -> None:
    held = await parked.suspended(db, handler(await given.claimed(db), "go"))
    first, second = await another(), await another()

    async with first.transaction():
        signal = NewSignal(execution_id=held.id, signal_name="go", idempotency_key="k")
        await send_signals(first, [signal])
        asked = await given.blocked(db, second, sent(second, held.id))

    assert (await asked).effect is SignalEffect.BUFFERED_IN_INBOX
    rows = await db.fetch("SELECT signal_seq FROM ff.signal_inbox ORDER BY signal_seq")
    assert [row["signal_seq"] for row in rows] == [1, 2]


async def test_of_two_signals_with_one_key_at_once_the_second_is_a_duplicate(
    db: Connection, another: Another
) -> None:
    execution_id = await given.created(db)
    signal = NewSignal(execution_id=execution_id, signal_name="go", idempotency_key="k")
    first, second = await another(), await another()

    async def again() -> Any:
        async with second.transaction():
            return await send_signals(second, [signal])

    async with first.transaction():
        await send_signals(first, [signal])
        asked = await given.blocked(db, second, again())

    [answer] = await asked
    assert answer.existing_signal_id == signal.signal_id


# Signals on waitpoints.


@pytest.mark.parametrize("handles", [True, False])
async def test_a_buffered_signal_that_comes_first_is_seen_by_the_suspend(
    db: Connection, another: Another, handles: bool
) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease, "a")
    bound = (UsePending(waitpoint_id=waitpoint.waitpoint_id),)
    request = (
        handler(lease, bindings=bound, condition=AnyCondition((Single("a"),)))
        if handles
        else SuspendRequest(lease=lease, bindings=bound, condition=Single("a"))
    )
    first, second = await another(), await another()

    async with first.transaction():
        await deliver(first, lease.execution_id, waitpoint)
        asked = await given.blocked(db, second, suspend_all(second, [request]))

    [answer] = await asked
    assert isinstance(answer, NothingToSuspendFor if handles else SatisfiedAlready)
    assert await given.public_state(db, lease.execution_id) == "active"


async def test_a_signal_to_a_waitpoint_that_comes_second_resumes(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    waitpoint = await pending(db, lease, "a")
    bound = (UsePending(waitpoint_id=waitpoint.waitpoint_id),)
    first, second = await another(), await another()

    async with first.transaction():
        await suspend(first, [SuspendRequest(lease=lease, bindings=bound, condition=Single("a"))])
        asked = await given.blocked(db, second, deliver(second, lease.execution_id, waitpoint))

    assert await asked is SignalEffect.RESUME_CONDITION_SATISFIED


async def test_the_sweep_of_expired_waitpoints_leaves_one_that_is_being_used(
    db: Connection, clock: Clock, another: Another
) -> None:
    lease = await given.claimed(db, ttl=60)
    waitpoint = await pending(db, lease, "a", expires_in=10)
    bound = (UsePending(waitpoint_id=waitpoint.waitpoint_id),)
    first, second = await another(), await another()

    async with first.transaction():
        await suspend(first, [SuspendRequest(lease=lease, bindings=bound, condition=Single("a"))])
        await clock.advance(10)
        assert await expire_pending_waitpoints(second, 10) == 0

    assert await expire_pending_waitpoints(second, 10) == 0
    assert [each["state"] for each in await parked.waitpoints(db, lease.execution_id)] == ["active"]


# Children.


async def test_a_decision_that_comes_first_is_seen_by_the_suspend(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("ab", policy=AnyOf("let_run"))
    await family.complete("a")
    first, second = await another(), await another()

    async with first.transaction():
        assert await dispatch_completions(first) == 1
        asked = await given.blocked(db, second, suspend_all(second, [for_children(family)]))

    assert await asked == [NothingToSuspendFor(execution_id=family.parent)]
    assert await given.public_state(db, family.parent) == "active"


async def test_a_decision_that_comes_second_resumes_the_parent(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("ab", policy=AnyOf("let_run"))
    await family.complete("a")
    first, second = await another(), await another()

    async with first.transaction():
        [answer] = await suspend(first, [for_children(family)])
        asked = await given.blocked(db, second, dispatched(second))

    assert isinstance(answer, Suspended)
    assert await asked == 1
    assert await given.public_state(db, family.parent) == "resumable"
    assert await parked.broken(db) == []


async def test_a_child_that_ended_before_and_was_not_dispatched_yet_resumes_its_parent_later(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await family.complete("a")

    await parked.suspended(db, for_children(family))
    assert await family.state("p") == "suspended"
    await family.settle()

    assert await family.state("p") == "resumable"


@pytest.mark.parametrize("letter", "SF")
async def test_of_several_joins_the_first_to_be_decided_resumes(
    ff_engine: Engine, db: Connection, letter: str
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await family.spawn("b", position=1)
    held = await parked.suspended(db, for_children(family, 0, 1))

    await family.end("b", letter)
    await family.settle()

    assert await family.state("p") == "resumable"
    assert (await parked.suspension(db, held.id))["close_reason"] == "resumed"
    family.lease = (await family.claim("p"))[0]
    [decided] = await suspend_all(db, [for_children(family, 0, 1)])
    assert decided == NothingToSuspendFor(execution_id=family.parent)
    await parked.suspended(db, for_children(family, 0))


async def test_a_join_that_the_handler_does_not_wait_for_leaves_it_suspended(
    ff_engine: Engine, db: Connection
) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await family.spawn("b", position=1)
    await parked.suspended(db, for_children(family, 1))

    await family.complete("a")
    await family.settle()

    assert await family.state("p") == "suspended"


async def test_a_join_of_nobody_is_not_waited_for(ff_engine: Engine, db: Connection) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")

    [answer] = await suspend_all(db, [for_children(family, 0, 7)])

    assert answer == NothingToSuspendFor(execution_id=family.parent)


async def test_the_fence_comes_before_a_decided_join(ff_engine: Engine, db: Connection) -> None:
    family = await parent(ff_engine, db)
    await family.spawn("a")
    await family.complete("a")
    await family.settle()
    await cancel_execution(db, family.parent, reason="no")

    [answer] = await suspend_all(db, [for_children(family)])

    assert isinstance(answer, ExecutionNotActive)


# The lease.


async def test_a_parent_that_is_cancelled_meanwhile_is_not_suspended(
    ff_engine: Engine, db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    first, second = await another(), await another()

    async with first.transaction():
        await cancel_execution(first, lease.execution_id, reason="no")
        asked = await given.blocked(db, second, suspend_all(second, [parked.ask(lease)]))

    [answer] = await asked
    assert isinstance(answer, ExecutionNotActive)
    assert await parked.broken(db) == []


async def test_a_cancel_that_comes_second_ends_the_suspended_execution(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    first, second = await another(), await another()

    async def cancelled() -> None:
        async with second.transaction():
            await cancel_execution(second, lease.execution_id, reason="no")

    async with first.transaction():
        await suspend(first, [parked.ask(lease)])
        asked = await given.blocked(db, second, cancelled())

    await asked
    assert await parked.closed(db, lease.execution_id) == ("cancelled", {"cancelled"})
    assert await parked.broken(db) == []


async def test_a_lease_that_expires_while_the_suspend_waits_is_refused(
    db: Connection, clock: Clock, another: Another
) -> None:
    lease = await given.claimed(db, ttl=30)
    first, second = await another(), await another()
    request = parked.ask(lease, timeout_at=await later(clock, 900))

    async with first.transaction():
        await first.execute("SELECT FROM ff.exec_core FOR UPDATE")
        asked = await given.blocked(db, second, suspend_all(second, [request]))
        await clock.advance(30)

    [answer] = await asked
    assert answer.code == "lease_expired"
    assert await expire_leases(db, 10) == 1
    assert await parked.broken(db) == []
