"""The timeout of a suspension: five behaviours, each re-checked under the lock of its execution."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.conditions import AnyCondition, Single, TimeoutOnly
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.suspensions.expire_suspension import (
    SuspensionExpired,
    SuspensionNotExpired,
    expire_suspension,
)
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions, suspensions_due
from flowfabric.engine.suspensions.observe_signals import observe_signals
from flowfabric.engine.suspensions.suspension import UsePending
from flowfabric.errors import NotFound, TargetNotSignalable
from flowfabric.ids import ExecutionId
from flowfabric.reconcile.find_due import find_due
from flowfabric.states import TimeoutBehavior
from flowfabric.testing import Clock
from tests import given
from tests.engine.flows.graphs import submitted
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import AUTO, Parked, deliver, handler, later

Another = Callable[[], Awaitable[Connection]]


@pytest.fixture(autouse=True)
async def key(db: Connection, clock: Clock) -> None:
    await parked.keyed(db)


async def sweep(db: Connection, limit: int = 100) -> int:
    async with db.transaction():
        return await expire_suspensions(db, limit)


async def due(db: Connection, clock: Clock, behavior: str, **fields: Any) -> Parked:
    """A suspended execution whose timeout has passed."""
    held = await parked.parked(
        db,
        timeout_at=await later(clock, 60),
        timeout_behavior=TimeoutBehavior(behavior),
        **fields,
    )
    await clock.advance(60)
    return held


# The behaviours.


@pytest.mark.parametrize(
    ("behavior", "state", "failure", "cancellation"),
    [
        ("fail", "failed", "suspension_timeout:fail", "suspension_timeout_fail"),
        ("cancel", "cancelled", None, "suspension_timeout_cancel"),
        ("expire", "expired", "suspension_timeout_expire", "suspension_timeout_expire"),
    ],
)
async def test_an_execution_ends_by_its_timeout(
    db: Connection,
    clock: Clock,
    behavior: str,
    state: str,
    failure: str | None,
    cancellation: str,
) -> None:
    held = await due(db, clock, behavior)

    assert await sweep(db) == 1

    vector = f"terminal/not_applicable/none/{state}/attempt_terminal → {state}"
    assert await given.standing(db, held.id) == vector
    row, now = await given.row(db, held.id), await clock.now_ms()
    assert row == row | {
        "terminal_at_ms": now,
        "failure_reason": failure,
        "failure_category": None if failure is None else "timeout",
        "cancellation_reason": cancellation,
        "cancelled_by": "suspension_timeout" if state == "cancelled" else None,
    }
    [attempt] = await given.attempts(db, held.id)
    assert (attempt["outcome"], attempt["ended_at_ms"]) == (state, now)
    assert await given.completion_events(db, held.id) == [state]
    assert await given.lease_events(db, held.id) == [("acquired", None), ("revoked", "suspended")]
    reason = f"timed_out_{behavior}"
    assert await parked.closed(db, held.id) == (reason, {reason})
    assert await parked.broken(db) == []
    assert await sweep(db) == 0


async def test_an_execution_goes_on_with_a_signal_that_says_so(
    db: Connection, clock: Clock
) -> None:
    held = await due(db, clock, AUTO)

    assert await sweep(db) == 1

    vector = "runnable/eligible_now/waiting_for_worker/none/attempt_interrupted → resumable"
    assert await given.standing(db, held.id) == vector
    assert await given.completion_events(db, held.id) == ["resumable"]
    reason = "timed_out_auto_resume"
    assert await parked.closed(db, held.id) == (reason, {reason})
    lease = await parked.taken_up(db, held.id)
    [signal] = await observe_signals(db, lease)
    assert (
        signal.signal_name,
        signal.signal_category,
        signal.source_type,
        signal.source_identity,
        signal.accepted_at,
        signal.payload,
    ) == ("timeout", "system", "system", "suspension_timeout", await clock.now(), None)
    stored = await parked.suspension(db, held.id)
    assert stored["closer_signal_id"] == signal.signal_id
    assert lease.attempt_index == held.lease.attempt_index
    assert await parked.broken(db) == []


async def test_a_handler_that_is_resumed_keeps_its_waitpoints(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    waitpoint = await parked.pending(db, lease, "a", expires_in=3600)
    held = await parked.suspended(
        db,
        handler(
            lease,
            "go",
            bindings=(UsePending(waitpoint_id=waitpoint.waitpoint_id),),
            condition=AnyCondition((Single("a"),)),
            timeout_at=await later(clock, 60),
        ),
    )
    await clock.advance(60)

    await sweep(db)

    assert await given.public_state(db, held.id) == "resumable"
    assert await parked.closed(db, held.id) == ("timed_out_auto_resume", {None})


async def test_an_escalated_execution_stays_suspended_and_can_still_be_signalled(
    db: Connection, clock: Clock
) -> None:
    held = await due(db, clock, "escalate")

    assert await sweep(db) == 1

    vector = "suspended/not_applicable/paused_by_operator/none/attempt_interrupted → suspended"
    assert await given.standing(db, held.id) == vector
    stored = await parked.suspension(db, held.id)
    assert stored == stored | {
        "reason_code": "waiting_for_operator_review",
        "timeout_at_ms": None,
        "timeout_behavior": "fail",
        "closed_at_ms": None,
    }
    assert await given.completion_events(db, held.id) == []
    [attempt] = await given.attempts(db, held.id)
    assert attempt["outcome"] == "suspended"
    await clock.advance(10**6)
    assert await sweep(db) == 0
    await deliver(db, held.id, held.waitpoint)
    assert await given.public_state(db, held.id) == "resumable"


async def test_one_sweep_applies_every_behaviour_the_longest_overdue_first(
    db: Connection, clock: Clock
) -> None:
    held = [
        await parked.parked(db, timeout_at=await later(clock, 5 - place), timeout_behavior=behavior)
        for place, behavior in enumerate(TimeoutBehavior)
    ]
    await clock.advance(60)

    assert await sweep(db, limit=2) == 2
    assert [await given.public_state(db, each.id) for each in held] == [
        *["suspended"] * 3,
        "resumable",
        "suspended",  # escalated
    ]
    assert await sweep(db) == 3

    assert [await given.public_state(db, each.id) for each in held] == [
        "failed",
        "cancelled",
        "expired",
        "resumable",
        "suspended",
    ]
    assert await parked.broken(db) == []


# What is not due.


async def test_a_timeout_counts_from_its_instant_on(db: Connection, clock: Clock) -> None:
    await parked.parked(db, timeout_at=await later(clock, 60))
    await parked.parked(db)

    await clock.advance(59.999)
    assert not await suspensions_due(db)
    assert await sweep(db) == 0
    await clock.advance(0.001)

    assert await suspensions_due(db)
    assert await sweep(db) == 1


@pytest.mark.parametrize("way", ["signal", "operator", "completed", "suspended again"])
async def test_a_timeout_never_reaches_an_execution_that_was_resumed(
    db: Connection, ff_engine: Engine, clock: Clock, way: str
) -> None:
    held = await parked.parked(db, timeout_at=await later(clock, 60))
    if way == "operator":
        await ff_engine.resume_execution(held.id)
    else:
        await deliver(db, held.id, held.waitpoint)
    if way in ("completed", "suspended again"):
        lease = await parked.taken_up(db, held.id)
        if way == "completed":
            await complete(db, [Completion(lease, b"done")])
        else:
            await parked.suspended(db, parked.ask(lease))
    before = await given.everything(db)
    await clock.advance(10**6)

    assert await sweep(db) == 0
    answer = await ff_engine.expire_suspension(held.id)

    assert isinstance(answer, SuspensionNotExpired)
    assert await given.everything(db) == before


async def test_an_open_timeout_beside_an_execution_that_goes_on_changes_nothing(
    db: Connection, clock: Clock
) -> None:
    """The check under the lock stands on its own: a row that should not be is passed over."""
    held = await parked.parked(db, timeout_at=await later(clock, 60))
    await deliver(db, held.id, held.waitpoint)
    await db.execute(
        "UPDATE ff.suspension_current SET closed_at_ms = NULL, close_reason = NULL,"
        " timeout_at_ms = suspended_at_ms"
    )
    before = await given.everything(db)

    assert await sweep(db) == 0
    assert await given.everything(db) == before


# Two connections.


async def test_a_signal_that_comes_first_wins(
    db: Connection, clock: Clock, another: Another
) -> None:
    held = await due(db, clock, "fail")
    first, second = await another(), await another()

    async with first.transaction():
        await deliver(first, held.id, held.waitpoint)
        assert await sweep(second) == 0  # it is locked, and passed over
        asked = await given.blocked(db, second, one(second, held.id))

    assert await asked == SuspensionNotExpired(
        execution_id=held.id, reason="execution_is_resumable"
    )
    assert await given.public_state(db, held.id) == "resumable"


async def test_a_signal_that_comes_second_is_refused(
    db: Connection, clock: Clock, another: Another
) -> None:
    held = await due(db, clock, "fail")
    first, second = await another(), await another()

    async with first.transaction():
        assert await expire_suspensions(first, 10) == 1
        asked = await given.blocked(db, second, deliver(second, held.id, held.waitpoint))

    with pytest.raises(TargetNotSignalable):
        await asked
    assert await given.public_state(db, held.id) == "failed"


async def one(db: Connection, execution_id: ExecutionId) -> Any:
    async with db.transaction():
        return await expire_suspension(db, execution_id)


# One execution.


@pytest.mark.parametrize("behavior", list(TimeoutBehavior))
async def test_one_execution_is_treated_as_by_the_sweep(
    db: Connection, clock: Clock, behavior: TimeoutBehavior
) -> None:
    held = await due(db, clock, behavior)

    assert await one(db, held.id) == SuspensionExpired(
        execution_id=held.id, behavior_applied=behavior
    )
    assert isinstance(await one(db, held.id), SuspensionNotExpired)


async def test_one_that_is_not_due_says_why(db: Connection, clock: Clock) -> None:
    held = await parked.parked(db, timeout_at=await later(clock, 60))
    running = (await given.claimed(db)).execution_id

    assert [(await one(db, each)).reason for each in (held.id, running)] == [
        "timeout_not_due",
        "execution_is_active",
    ]
    with pytest.raises(NotFound):
        await one(db, ExecutionId.mint())


# The process that sweeps.


async def test_the_next_timeout_is_known_to_the_process_that_sweeps(
    db: Connection, clock: Clock
) -> None:
    await parked.parked(db, timeout_at=await later(clock, 3))
    await given.created(db, delay=10)

    look = await find_due(db, "w-1", ["expire_suspensions", "promote_due"])
    assert (look.due, look.next_due_ms) == ([], 3000)
    await clock.advance(3)

    look = await find_due(db, "w-1", ["expire_suspensions", "promote_due"])
    assert (look.due, look.next_due_ms) == (["expire_suspensions"], 7000)


async def test_a_member_whose_timeout_passes_skips_what_waits_for_it(
    db: Connection, ff_engine: Engine, clock: Clock
) -> None:
    flow = await submitted(ff_engine, "a>b")
    [lease] = await flow.claim("a")
    await parked.suspended(
        db,
        parked.ask(lease, condition=TimeoutOnly(), timeout_at=await later(clock, 9)),
    )
    await clock.advance(9)

    assert await sweep(db) == 1
    await flow.carry_all()

    assert (await flow.state("a"), await flow.state("b")) == ("failed", "skipped")
