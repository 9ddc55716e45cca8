"""Signals at the same time: none is lost, one resumes, and nobody is deadlocked."""

from __future__ import annotations

import asyncio

import msgspec

from flowfabric.conditions import AllConditions, CountOf, Single
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.errors import TargetNotSignalable, WaitpointClosed
from flowfabric.states import PublicState, SignalEffect
from tests import given
from tests.engine.controls import Another
from tests.engine.suspensions.given_suspended import (
    Suspended,
    deliver,
    effects,
    kept,
    leased,
    pending,
    suspend,
    suspended,
    suspension,
    waitpoint_row,
)

RESUMES = SignalEffect.RESUME_CONDITION_SATISFIED


async def test_two_signals_that_complete_a_quorum_together_resume_once(
    db: Connection, another: Another
) -> None:
    held = await suspended(db, CountOf(2, ("a", "b")))
    first, second = await another(), await another()
    transaction = first.transaction()
    await transaction.start()
    one = await deliver(first, held.waitpoints["a"])

    waiting = await given.blocked(db, second, deliver(second, held.waitpoints["b"]))
    await transaction.commit()
    two = await waiting

    assert isinstance(one, SignalAccepted)
    assert isinstance(two, SignalAccepted)
    assert (one.effect, two.effect) == (SignalEffect.APPENDED_TO_WAITPOINT, RESUMES)
    closed = await suspension(db, held.execution_id)
    assert len(msgspec.json.decode(closed["all_satisfier_signals"])) == 2
    assert await given.completion_events(db, held.execution_id) == ["resumable"]


async def test_a_second_signal_meets_the_waitpoint_that_the_first_closed(
    db: Connection, another: Another
) -> None:
    held = await suspended(db, Single("a"))
    first, second = await another(), await another()
    transaction = first.transaction()
    await transaction.start()
    await deliver(first, held.waitpoints["a"])

    waiting = await given.blocked(db, second, deliver(second, held.waitpoints["a"]))
    await transaction.commit()

    [late] = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(late, WaitpointClosed)
    assert await effects(db, held.execution_id) == [("go", RESUMES)]


async def test_one_idempotency_key_of_many_callers_is_one_signal(
    ff_engine: Engine, db: Connection
) -> None:
    waitpoint = await pending(db, await leased(db))

    answers = await asyncio.gather(
        *[
            ff_engine.deliver_signal(
                waitpoint.execution_id,
                waitpoint.waitpoint_id,
                waitpoint.token,
                "go",
                idempotency_key="once",
            )
            for _ in range(12)
        ]
    )

    kinds = [type(answer) for answer in answers]
    assert (kinds.count(SignalAccepted), kinds.count(SignalDuplicate)) == (1, 11)
    assert await kept(db, waitpoint) == ["go"]


async def test_many_signals_at_once_are_all_kept_and_the_last_needed_one_resumes(
    ff_engine: Engine, db: Connection
) -> None:
    held = await suspended(db, AllConditions((CountOf(10, ("a",), "signals"), Single("b"))))

    async def send(key: str) -> SignalEffect:
        waitpoint = held.waitpoints[key]
        answer = await ff_engine.deliver_signal(
            held.execution_id, waitpoint.waitpoint_id, waitpoint.token, "go"
        )
        assert isinstance(answer, SignalAccepted)
        return answer.effect

    found = await asyncio.gather(*[send(key) for key in ["a"] * 10 + ["b"]])

    assert found.count(RESUMES) == 1
    assert len(await kept(db, held.waitpoints["a"])) == 10
    assert await given.public_state(db, held.execution_id) is PublicState.RESUMABLE
    assert [event[1] for event in await effects(db, held.execution_id)].count(RESUMES) == 1


async def test_a_cancel_in_progress_is_waited_for_and_then_the_signal_is_refused(
    db: Connection, another: Another
) -> None:
    held = await suspended(db, Single("a"))
    first, second = await another(), await another()
    transaction = first.transaction()
    await transaction.start()
    await cancel_execution(first, held.execution_id, reason="no")

    waiting = await given.blocked(db, second, deliver(second, held.waitpoints["a"]))
    await transaction.commit()

    [late] = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(late, TargetNotSignalable)
    row = await waitpoint_row(db, held.waitpoints["a"])
    assert (row["state"], row["signal_count"]) == ("closed", 0)


async def test_a_signal_that_waits_for_the_suspension_resumes_it(
    db: Connection, another: Another
) -> None:
    """The waitpoint was pending when the signal was sent, and active when it arrived."""
    lease = await leased(db)
    held = Suspended(lease, {"a": await pending(db, lease)})
    first, second = await another(), await another()
    transaction = first.transaction()
    await transaction.start()
    await suspend(first, held, Single("a"))

    waiting = await given.blocked(db, second, deliver(second, held.waitpoints["a"]))
    await transaction.commit()
    answer = await waiting

    assert isinstance(answer, SignalAccepted)
    assert answer.effect is RESUMES
    assert await given.public_state(db, held.execution_id) is PublicState.RESUMABLE
