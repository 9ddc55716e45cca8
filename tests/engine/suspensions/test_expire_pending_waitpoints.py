"""Waitpoints that no suspension used in time are closed, and none can use what they buffered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from flowfabric.conditions import Single
from flowfabric.db.rows import Connection
from flowfabric.engine.suspensions.expire_pending_waitpoints import expire_pending_waitpoints
from flowfabric.errors import WaitpointClosed
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.suspensions.given_suspended import (
    accepted,
    deliver,
    leased,
    pending,
    suspended,
    waitpoint_row,
)


async def test_a_pending_waitpoint_is_closed_when_its_time_is_over(
    db: Connection, clock: Clock
) -> None:
    waitpoint = await pending(db, await leased(db, ttl=900), expires_in=10)
    await accepted(db, waitpoint)
    await clock.advance(9.999)
    assert await expire_pending_waitpoints(db, 10) == 0
    await clock.advance(0.001)

    assert await expire_pending_waitpoints(db, 10) == 1

    row = await waitpoint_row(db, waitpoint)
    assert (row["state"], row["close_reason"]) == ("closed", "never_committed")
    assert row["closed_at_ms"] == await clock.now_ms()
    assert (len(row["signals"]), row["signal_count"]) == (1, 1)
    assert await expire_pending_waitpoints(db, 10) == 0


async def test_an_active_waitpoint_is_left_to_the_timeout_of_its_suspension(
    db: Connection, clock: Clock
) -> None:
    held = await suspended(db, Single("a", "go"))
    await accepted(db, held.waitpoints["a"], "stay")
    await db.execute("UPDATE ff.waitpoint_pending SET expires_at_ms = ff.now_ms()")
    await clock.advance(60)
    before = await given.everything(db)

    assert await expire_pending_waitpoints(db, 10) == 0

    assert await given.everything(db) == before
    await accepted(db, held.waitpoints["a"], "go")


async def test_a_sweep_keeps_to_its_limit_and_takes_the_longest_overdue_first(
    db: Connection, clock: Clock
) -> None:
    lease = await leased(db, ttl=900)
    waitpoints = [await pending(db, lease, expires_in=seconds) for seconds in (3, 1, 2)]
    await clock.advance(10)

    assert await expire_pending_waitpoints(db, 2) == 2

    states = [(await waitpoint_row(db, each))["state"] for each in waitpoints]
    assert states == ["pending", "closed", "closed"]
    assert await expire_pending_waitpoints(db, 2) == 1


async def test_a_waitpoint_that_is_being_signalled_is_passed_over(
    db: Connection, another: Another, clock: Clock
) -> None:
    lease = await leased(db, ttl=900)
    busy = await pending(db, lease, expires_in=10)
    await pending(db, lease, expires_in=10)
    signalling = await another()
    transaction = signalling.transaction()
    await transaction.start()
    await deliver(signalling, busy)
    await clock.advance(10)

    assert await expire_pending_waitpoints(db, 10) == 1

    await transaction.commit()
    assert (await waitpoint_row(db, busy))["state"] == "pending"


async def test_a_signal_that_waits_for_the_sweep_finds_the_waitpoint_closed(
    db: Connection, another: Another, clock: Clock
) -> None:
    waitpoint = await pending(db, await leased(db, ttl=900), expires_in=10)
    sweeping, signalling = await another(), await another()
    await clock.advance(10)
    transaction = sweeping.transaction()
    await transaction.start()
    assert await expire_pending_waitpoints(sweeping, 10) == 1

    waiting = await given.blocked(db, signalling, deliver(signalling, waitpoint))
    await transaction.commit()

    [answer] = [await _outcome(waiting)]
    assert isinstance(answer, WaitpointClosed)
    assert (await waitpoint_row(db, waitpoint))["signal_count"] == 0


async def _outcome(task: Awaitable[object]) -> object:
    try:
        return await task
    except WaitpointClosed as closed:
        return closed


async def test_expired_waitpoints_are_swept(
    db: Connection, clock: Clock, ff_sweep: Callable[[], Awaitable[int]]
) -> None:
    waitpoint = await pending(db, await leased(db, ttl=900), expires_in=1)
    await clock.advance(2)

    await ff_sweep()

    assert (await waitpoint_row(db, waitpoint))["close_reason"] == "never_committed"
