"""What a handler waits for: signals, waitpoints, children, time, an operator; and what wakes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from flowfabric.conditions import (
    AllConditions,
    AnyCondition,
    Condition,
    CountOf,
    OperatorOnly,
    Single,
    TimeoutOnly,
)
from flowfabric.db.rows import Connection
from flowfabric.engine.executions.describe_execution import CurrentSuspension, describe_execution
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.executions.explanation import ExplanationReason, ReasonCode
from flowfabric.engine.executions.wait_reasons import condition_text
from flowfabric.engine.journal.arm_compensation import arm_compensation
from flowfabric.engine.journal.compensation import CompensationCall
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.journal.start_compensations import start_compensations
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.suspensions.close_waitpoint import close_waitpoint
from flowfabric.engine.suspensions.deliver_approval_signal import deliver_approval_signal
from flowfabric.engine.suspensions.expire_suspensions import expire_suspensions
from flowfabric.engine.suspensions.send_signal import NewSignal, send_signals
from flowfabric.engine.suspensions.suspend import suspend
from flowfabric.engine.suspensions.suspension import Fresh, SuspendRequest, UsePending
from flowfabric.ids import ExecutionId, compensation_id
from flowfabric.states import (
    DIVERGENCE,
    JournalKind,
    JournalState,
    SuspensionReason,
    TimeoutBehavior,
)
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.executions.explained import at, only, worker
from tests.engine.executions.suspended import (
    asleep,
    suspended,
    waiting_for_signal,
    waitpoint,
    with_key,
)

SOME = UUID(int=7)


async def reasons(db: Connection, execution_id: ExecutionId) -> list[ExplanationReason]:
    return (await explain_execution(db, execution_id)).reasons


async def approve(db: Connection, execution_id: ExecutionId, waitpoint: Any, by: str) -> None:
    async with db.transaction():
        await deliver_approval_signal(
            db,
            execution_id,
            waitpoint.waitpoint_id,
            "approve",
            lane_id="default",
            idempotency_suffix=by,
            operator_identity=by,
        )


# Signals by name.


async def test_a_handler_waits_for_a_signal(db: Connection, clock: Clock) -> None:
    now = await clock.now()
    execution_id = await waiting_for_signal(db)

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.SUSPENDED,
        message=f"waits for signal 'approved' since {at(now)}",
        remedy=f"send what it waits for: ff signals send '{execution_id}' approved",
    )


@pytest.mark.parametrize(
    ("behavior", "then"),
    [
        (TimeoutBehavior.FAIL, "it fails"),
        (TimeoutBehavior.CANCEL, "it is cancelled"),
        (TimeoutBehavior.EXPIRE, "it expires"),
        (TimeoutBehavior.AUTO_RESUME, "it goes on without"),
        (TimeoutBehavior.ESCALATE, "it waits for an operator"),
    ],
)
async def test_it_says_when_it_times_out_and_what_happens_then(
    db: Connection, clock: Clock, behavior: TimeoutBehavior, then: str
) -> None:
    due = await clock.now() + timedelta(days=7)
    execution_id = await waiting_for_signal(db, timeout_at=due, timeout_behavior=behavior)

    reason = await only(db, execution_id)

    assert f" (times out {at(due)}, then {then})" in reason.message
    assert reason.clears_at == due


async def test_signals_of_other_names_in_its_inbox_are_named(db: Connection) -> None:
    execution_id = await waiting_for_signal(db)
    names = ["aproved", "a", "a", "b", "c"]
    async with db.transaction():
        await send_signals(
            db, [NewSignal(execution_id=execution_id, signal_name=name) for name in names]
        )

    reason = await only(db, execution_id)

    assert reason.message.endswith("; its inbox has 5 of other names: 'a', 'aproved', 'b', …")


# Waitpoints.


async def test_it_says_which_signals_on_which_waitpoint_and_how_many_count(
    db: Connection,
) -> None:
    lease, point = await waitpoint(db)
    condition = CountOf(2, ("approve#0",), "sources", "approve")
    request = SuspendRequest(
        lease=lease,
        bindings=(UsePending(waitpoint_id=point.waitpoint_id),),
        condition=AnyCondition((condition,)),
        detail="waits for signals on 'approve'",
        keeps_waitpoints=True,
    )
    async with db.transaction():
        await suspend(db, [request])
    waits = (await only(db, lease.execution_id)).message
    await approve(db, lease.execution_id, point, "ann")
    reason = await only(db, lease.execution_id)

    assert waits.startswith(
        "waits for signals on 'approve' "
        "(2 signals 'approve' from different sources on 'approve#0') since "
    )
    assert reason.message.endswith("; of 1 signal that came 1 counts")
    assert (
        reason.remedy
        == f"send what it waits for: ff waitpoints approve '{lease.execution_id}' 'approve#0'"
    )


async def test_the_command_of_each_waitpoint_has_the_name_that_counts(
    db: Connection,
) -> None:
    lease, first = await waitpoint(db, "go")
    second = uuid4()
    request = SuspendRequest(
        lease=lease,
        bindings=(
            UsePending(waitpoint_id=first.waitpoint_id),
            Fresh(waitpoint_id=second, waitpoint_key="stop"),
        ),
        condition=AllConditions((Single("go", "start now"), Single("stop"))),
    )
    async with db.transaction():
        await suspend(db, [request])

    reason = await only(db, lease.execution_id)

    approve_it = f"ff waitpoints approve '{lease.execution_id}'"
    assert f"{approve_it} go --signal 'start now' or {approve_it} stop" in reason.remedy
    assert reason.remedy.endswith(f"; or let it go on: ff executions resume '{lease.execution_id}'")
    assert "waits for signal 'start now' on 'go' and any signal on 'stop'" in reason.message


async def test_it_says_that_no_signal_can_come_once_an_operator_has_closed_its_waitpoint(
    db: Connection,
) -> None:
    lease, first = await waitpoint(db, "go")
    second = uuid4()
    request = SuspendRequest(
        lease=lease,
        bindings=(
            UsePending(waitpoint_id=first.waitpoint_id),
            Fresh(waitpoint_id=second, waitpoint_key="stop"),
        ),
        condition=CountOf(1, ("go", "stop")),
    )
    async with db.transaction():
        await suspend(db, [request])
        await close_waitpoint(db, lease.execution_id, first.waitpoint_id, reason="too late")
    left = await only(db, lease.execution_id)
    async with db.transaction():
        await close_waitpoint(db, lease.execution_id, second, reason="not needed")

    reason = await only(db, lease.execution_id)

    named = f"'{lease.execution_id}'"
    assert "can let it go on" not in left.message
    assert f"ff waitpoints approve {named} stop; or " in left.remedy
    assert reason.message.endswith(
        "; no signal can let it go on any more: an operator closed "
        "'go' (too late) and 'stop' (not needed)"
    )
    assert reason.remedy == (
        f"let it go on: ff executions resume {named}; or end it: ff executions cancel {named}"
    )


@all_cases(
    ("condition", "text"),
    [
        (Single("a", "x"), "signal 'x' on 'a'"),
        (Single("a"), "any signal on 'a'"),
        (CountOf(1, ("a", "b")), "1 signal on different waitpoints among 'a', 'b'"),
        (CountOf(2, ("a",), "signals", "x"), "2 signals 'x' on 'a'"),
        (CountOf(2, ("a",), "sources"), "2 signals from different sources on 'a'"),
        (
            AllConditions((Single("a"), AllConditions((Single("b"), Single("c"))))),
            "any signal on 'a' and (any signal on 'b' and any signal on 'c')",
        ),
        (AnyCondition((Single("a"), Single("b"))), "any signal on 'a' or any signal on 'b'"),
        (OperatorOnly(), ""),
        (TimeoutOnly(), ""),
    ],
)
def test_conditions_in_words(condition: Condition, text: str) -> None:
    assert condition_text(condition) == text


# An operator.


async def test_an_operator_has_to_let_it_go(db: Connection, clock: Clock) -> None:
    await with_key(db)
    now = await clock.now()
    execution_id = await suspended(
        db, bindings=(Fresh(),), reason=SuspensionReason.MANUAL_PAUSE, detail="look at order 7"
    )

    reason = await only(db, execution_id)

    assert (
        reason.message == f"waits for an operator (manual pause) (look at order 7) since {at(now)}"
    )
    assert reason.remedy.endswith(f"let it go on: ff executions resume '{execution_id}'")


async def test_a_timeout_has_passed_it_on_to_an_operator(db: Connection, clock: Clock) -> None:
    due = await clock.now() + timedelta(minutes=1)
    execution_id = await waiting_for_signal(
        db, timeout_at=due, timeout_behavior=TimeoutBehavior.ESCALATE
    )
    await clock.advance(61)
    async with db.transaction():
        await expire_suspensions(db, 10)

    reason = await only(db, execution_id)

    assert reason.message.startswith(
        "its timeout has passed, and an operator has to decide: it waits for signal 'approved'"
    )
    assert f"ff signals send '{execution_id}' approved" in reason.remedy


async def test_a_divergence_shows_both_sequences_and_the_remedy(db: Connection) -> None:
    execution_id = await suspended(
        db,
        kind="ship order",
        reason=SuspensionReason.WAITING_FOR_OPERATOR_REVIEW,
        keeps_waitpoints=True,
        detail=f"{DIVERGENCE}the handler made other calls than before; "
        "recorded: reserve#0, charge#0; asked: reserve#0, bill#0",
    )

    reason = await only(db, execution_id)

    assert reason.why is ReasonCode.DIVERGED
    assert reason.message == (
        "the handler made other calls than before; "
        "recorded: reserve#0, charge#0; asked: reserve#0, bill#0"
    )
    assert f"ff executions resume '{execution_id}'" in reason.remedy
    assert "ff executions resume --divergent --kind 'ship order'" in reason.remedy
    assert f"ff executions replay '{execution_id}' --from start" in reason.remedy


# Children.


async def test_a_handler_waits_for_children_and_a_signal(db: Connection) -> None:
    execution_id = await suspended(
        db,
        keeps_waitpoints=True,
        awaits_signals=("stop",),
        signals_read=0,
        awaits_joins=(),
        detail="waits for the first of job, stop",
    )
    await db.execute("UPDATE ff.suspension_current SET awaits_joins = $1", [uuid4()])

    reason = await only(db, execution_id)

    assert reason.message.startswith("waits for the first of job, stop since ")
    assert "it goes on when its children have ended" in reason.remedy


# Time.


async def test_a_sleep_says_until_when_and_how_it_is_ended(db: Connection, clock: Clock) -> None:
    await worker(db)
    until = await clock.now() + timedelta(days=2)
    execution_id = await asleep(db, until, "sleeps in 'cool-down'")

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.SLEEPS,
        message=f"sleeps in 'cool-down' until {at(until)} (in 2 days)",
        remedy="it goes on by itself; to end the sleep now: "
        f"ff executions wake '{execution_id}' --skip",
        clears_at=until,
    )


async def test_the_next_try_of_a_step(db: Connection, clock: Clock) -> None:
    await worker(db)
    until = await clock.now() + timedelta(seconds=90)
    execution_id = await asleep(db, until, "step 'charge': try 3 of 6")

    assert await only(db, execution_id) == ExplanationReason(
        why=ReasonCode.NOT_DUE,
        message=f"step 'charge': try 3 of 6 at {at(until)} (in 90 s)",
        remedy="it goes on by itself",
        clears_at=until,
    )


async def test_of_several_timers_the_first_is_told(db: Connection, clock: Clock) -> None:
    await worker(db)
    until = await clock.now() + timedelta(hours=3)
    execution_id = await asleep(db, until, "sleeps in 'a'; step 'b': try 2 of 3")

    reason = await only(db, execution_id)

    assert (
        reason.message
        == f"sleeps in 'a'; step 'b': try 2 of 3; the first until {at(until)} (in 3 hours)"
    )


async def test_a_sleep_that_is_over_waits_for_a_sweep(db: Connection, clock: Clock) -> None:
    await worker(db)
    until = await clock.now() + timedelta(seconds=10)
    execution_id = await asleep(db, until, "sleeps in 'a'")
    await clock.advance(11)

    reason = await only(db, execution_id)

    assert reason.why is ReasonCode.DUE
    assert reason.message.startswith(f"sleeps in 'a'; it was due at {at(until)}")


# Compensations.


async def test_an_end_names_the_execution_that_compensates(db: Connection) -> None:
    lease = await given.claimed(db)
    entry = EntryWrite(
        lease=lease,
        seq=1,
        kind=JournalKind.COMPENSATION,
        state=JournalState.DONE,
        name="refund",
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    async with db.transaction():
        await arm_compensation(db, entry, CompensationCall(execution_kind="refund", payload=b"{}"))
    await fail(db, [Failure(lease=lease, reason="boom", category="x")])
    compensation = compensation_id(lease.execution_id, 0)

    before = await reasons(db, lease.execution_id)
    async with db.transaction():
        await start_compensations(db, 10)
    after = await reasons(db, lease.execution_id)

    assert before[1].message == "its compensations have not started"
    assert after[1] == ExplanationReason(
        why=ReasonCode.COMPENSATED,
        message=f"its compensations are execution {compensation}, waiting",
        remedy=f"ff explain '{compensation}'",
    )


# Described.


async def test_a_description_has_the_suspension(db: Connection, clock: Clock) -> None:
    now = await clock.now()
    due = now + timedelta(days=1)
    execution_id = await waiting_for_signal(
        db, timeout_at=due, timeout_behavior=TimeoutBehavior.AUTO_RESUME
    )

    found = await describe_execution(db, execution_id)

    assert found is not None
    assert found.current_suspension is not None
    assert msgspec.structs.replace(
        found.current_suspension, suspension_id=SOME
    ) == CurrentSuspension(
        suspension_id=SOME,
        reason=SuspensionReason.WAITING_FOR_SIGNAL,
        suspended_at=now,
        timeout_at=due,
        timeout_behavior=TimeoutBehavior.AUTO_RESUME,
        awaits_signals=["approved"],
    )
    assert found.blocking_detail == "waits for signal 'approved'"
