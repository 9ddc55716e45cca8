"""A waitpoint is closed by hand: no more signals, and an event that says who did it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from flowfabric.conditions import AllConditions, AnyCondition, CountOf, Single
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.suspensions.close_waitpoint import (
    ClosedWaitpoint,
    close_waitpoint,
    close_waitpoints,
)
from flowfabric.errors import NotFound, ValidationError, WaitpointClosed
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState, SignalEffect
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another, actions, bad_actors
from tests.engine.suspensions.given_suspended import (
    accepted,
    deliver,
    kept,
    leased,
    pending,
    suspended,
    suspension,
    waitpoint_row,
)


async def test_a_closed_waitpoint_takes_no_signals_and_keeps_those_it_had(
    db: Connection, clock: Clock
) -> None:
    waitpoint = await pending(db, await leased(db))
    await accepted(db, waitpoint)

    async with db.transaction():
        answer = await close_waitpoint(
            db, waitpoint.execution_id, waitpoint.waitpoint_id, reason="not needed", actor="ann"
        )

    assert answer == ClosedWaitpoint(
        execution_id=waitpoint.execution_id,
        waitpoint_id=waitpoint.waitpoint_id,
        close_reason="not needed",
        repeated=False,
    )
    row = await waitpoint_row(db, waitpoint)
    assert (row["state"], row["close_reason"]) == ("closed", "not needed")
    assert row["closed_at_ms"] == await clock.now_ms()
    assert await kept(db, waitpoint) == ["go"]
    with pytest.raises(WaitpointClosed):
        await deliver(db, waitpoint)
    [action] = await actions(db, waitpoint.execution_id)
    assert (action.event_type, action.actor, action.reason) == (
        "waitpoint_closed",
        "ann",
        "not needed",
    )
    assert action.details == {
        "waitpoint_id": str(waitpoint.waitpoint_id),
        "waitpoint_key": "a",
        "old_state": "pending",
    }


async def test_closing_again_changes_nothing(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    async with db.transaction():
        await close_waitpoint(db, waitpoint.execution_id, waitpoint.waitpoint_id)
    before = await given.everything(db)

    async with db.transaction():
        again = await close_waitpoint(
            db, waitpoint.execution_id, waitpoint.waitpoint_id, reason="other"
        )

    assert (again.repeated, again.close_reason) == (True, "proactive_close")
    assert await given.everything(db) == before


async def test_a_suspension_goes_on_waiting_for_its_other_waitpoints(db: Connection) -> None:
    held = await suspended(db, CountOf(1, ("a", "b")))

    async with db.transaction():
        await close_waitpoint(db, held.execution_id, held.waitpoint_id("a"))

    assert await given.public_state(db, held.execution_id) is PublicState.SUSPENDED
    await accepted(db, held.waitpoints["b"])
    assert await given.public_state(db, held.execution_id) is PublicState.RESUMABLE
    assert (await waitpoint_row(db, held.waitpoints["a"]))["close_reason"] == "proactive_close"


async def test_a_signal_that_came_before_its_waitpoint_was_closed_counts(db: Connection) -> None:
    held = await suspended(db, AllConditions((Single("a"), Single("b"))))
    await accepted(db, held.waitpoints["a"], "first")
    async with db.transaction():
        await close_waitpoint(db, held.execution_id, held.waitpoint_id("a"))

    last = await accepted(db, held.waitpoints["b"], "second")

    assert last.effect is SignalEffect.RESUME_CONDITION_SATISFIED
    assert await given.public_state(db, held.execution_id) is PublicState.RESUMABLE


async def test_a_suspended_handler_can_be_claimed_when_its_waitpoint_is_closed(
    db: Connection,
) -> None:
    condition = AnyCondition((Single("a"), Single("b")))
    held = await suspended(db, condition, keeps_waitpoints=True)

    async with db.transaction():
        answer = await close_waitpoint(db, held.execution_id, held.waitpoint_id("a"))

    assert (answer.resumed, answer.repeated) == (True, False)
    assert await given.public_state(db, held.execution_id) is PublicState.RESUMABLE
    assert (await suspension(db, held.execution_id))["close_reason"] == "waitpoint_closed"
    states = [(await waitpoint_row(db, held.waitpoints[key]))["state"] for key in "ab"]
    assert states == ["closed", "pending"]


async def test_a_waitpoint_that_no_suspension_waits_for_wakes_nobody(db: Connection) -> None:
    held = await suspended(db, AnyCondition((Single("a"),)), keeps_waitpoints=True)
    other = await pending(db, await leased(db), "b")

    for each in (other, held.waitpoints["a"]):
        async with db.transaction():
            answer = await close_waitpoint(db, each.execution_id, each.waitpoint_id)
        assert answer.resumed is (each is not other)
        async with db.transaction():
            again = await close_waitpoint(db, each.execution_id, each.waitpoint_id)
        assert (again.resumed, again.repeated) == (False, True)


async def test_several_are_answered_one_by_one_and_a_missing_one_spoils_none(
    db: Connection,
) -> None:
    lease, nowhere = await leased(db), uuid4()
    one, two = await pending(db, lease, "a"), await pending(db, lease, "b")

    async with db.transaction():
        answers = await close_waitpoints(
            db, lease.execution_id, [two.waitpoint_id, nowhere, one.waitpoint_id, two.waitpoint_id]
        )

    assert [type(answer) for answer in answers] == [
        ClosedWaitpoint,
        NotFound,
        ClosedWaitpoint,
        ClosedWaitpoint,
    ]
    assert isinstance(answers[1], NotFound)
    assert (answers[1].code, answers[1].name) == ("waitpoint_not_found", nowhere)
    assert len(await actions(db)) == 2


async def test_the_waitpoint_of_another_execution_does_not_exist(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    before = await given.everything(db)

    for execution_id in (await given.created(db), ExecutionId.mint()):
        before = await given.everything(db)
        with pytest.raises(NotFound, match="waitpoint"):
            async with db.transaction():
                await close_waitpoint(db, execution_id, waitpoint.waitpoint_id)
        assert await given.everything(db) == before


@bad_actors
async def test_a_bad_actor_is_refused(db: Connection, actor: str) -> None:
    with pytest.raises(ValidationError, match="actor"):
        await close_waitpoint(db, ExecutionId.mint(), uuid4(), actor=actor)


@pytest.mark.parametrize("reason", ["", "x" * 257, "a\x00b", 7])
async def test_a_bad_reason_is_refused(db: Connection, reason: Any) -> None:
    with pytest.raises(ValidationError, match="reason"):
        await close_waitpoint(db, ExecutionId.mint(), uuid4(), reason=reason)


async def test_a_signal_in_progress_comes_first_and_then_the_waitpoint_is_closed(
    db: Connection, another: Another
) -> None:
    held = await suspended(db, Single("a"))
    first, second = await another(), await another()
    transaction = first.transaction()
    await transaction.start()
    await deliver(first, held.waitpoints["a"])

    closing = await given.blocked(
        db, second, close_waitpoint(second, held.execution_id, held.waitpoint_id("a"))
    )
    await transaction.commit()

    answer = await closing
    assert (answer.repeated, answer.close_reason) == (True, "resumed")


async def test_waitpoints_are_closed_through_the_engine(ff_engine: Engine, db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    target = (waitpoint.execution_id, waitpoint.waitpoint_id)

    [one] = await ff_engine.close_waitpoints(waitpoint.execution_id, [waitpoint.waitpoint_id])
    again = await ff_engine.close_waitpoint(*target)

    assert isinstance(one, ClosedWaitpoint)
    assert (one.repeated, again.repeated) == (False, True)
