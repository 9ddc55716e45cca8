"""suspended → runnable: an operator lets a suspended execution go on."""

from typing import Any

import pytest

from flowfabric.conditions import OperatorOnly
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.operators.resume_execution import Resumed, resume_execution
from flowfabric.errors import ExecutionNotSuspended, NotFound, ValidationError, WaitpointClosed
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState, SuspensionReason
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import (
    NO_DATABASE,
    RUNNABLE,
    TERMINAL,
    Action,
    Another,
    actions,
    bad_actors,
    execution,
    waiting,
)
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import deliver


@pytest.fixture
async def held(db: Connection, clock: Clock) -> parked.Parked:
    """An execution that only an operator resumes."""
    await parked.keyed(db)
    return await parked.parked(
        db, condition=OperatorOnly(), reason=SuspensionReason.WAITING_FOR_OPERATOR_REVIEW
    )


async def test_the_execution_goes_on_in_the_same_attempt(
    db: Connection, clock: Clock, held: parked.Parked
) -> None:
    await clock.advance(5)

    answer = await resume_execution(db, held.id)

    assert answer == Resumed(execution_id=held.id, public_state=PublicState.RESUMABLE)
    vector = "runnable/eligible_now/waiting_for_worker/none/attempt_interrupted → resumable"
    assert await given.standing(db, held.id) == vector
    assert await parked.closed(db, held.id) == ("resumed", {"resumed"})
    stored = await parked.suspension(db, held.id)
    assert stored == stored | {
        "closed_at_ms": await clock.now_ms(),
        "satisfied_at_ms": None,
        "closer_signal_id": None,
        "all_satisfier_signals": None,
    }
    assert await given.completion_events(db, held.id) == []
    lease = await parked.taken_up(db, held.id)
    assert (lease.attempt_index, lease.attempt_id) == (0, held.lease.attempt_id)
    assert lease.lease_epoch == held.lease.lease_epoch + 1


async def test_a_delay_is_waited_for(db: Connection, clock: Clock, held: parked.Parked) -> None:
    answer = await resume_execution(db, held.id, delay=30)

    assert answer.public_state is PublicState.DELAYED
    vector = "runnable/not_eligible_until_time/waiting_for_resume_delay/none/attempt_interrupted"
    assert await given.standing(db, held.id) == f"{vector} → delayed"
    assert (await given.row(db, held.id))["delay_until_ms"] == await clock.now_ms() + 30_000
    await clock.advance(29.999)
    assert await promote_due(db, 10) == 0
    await clock.advance(0.001)
    assert await promote_due(db, 10) == 1
    assert await given.public_state(db, held.id) is PublicState.RESUMABLE


async def test_one_operator_event_tells_who_why_and_how(
    db: Connection, held: parked.Parked
) -> None:
    await resume_execution(
        db, held.id, actor="alice", reason="the code is fixed", trigger_type="auto_resume"
    )

    assert await actions(db, held.id) == [
        Action(
            "resumed",
            "alice",
            "the code is fixed",
            {
                "old_public_state": "suspended",
                "new_public_state": "resumable",
                "old_blocking_reason": "paused_by_operator",
                "trigger_type": "auto_resume",
            },
        )
    ]


async def test_a_late_signal_finds_its_waitpoint_closed(
    db: Connection, held: parked.Parked
) -> None:
    await resume_execution(db, held.id)

    with pytest.raises(WaitpointClosed):
        await deliver(db, held.id, held.waitpoint)


@pytest.mark.parametrize("state", [*RUNNABLE, "active", *TERMINAL])
async def test_whatever_is_not_suspended_is_left_as_it_is(
    db: Connection, clock: Clock, state: str
) -> None:
    execution_id = await execution(db, state)
    before = await given.everything(db)

    with pytest.raises(ExecutionNotSuspended) as raised:
        await resume_execution(db, execution_id)

    assert raised.value.public_state == await given.public_state(db, execution_id)
    assert await given.everything(db) == before


async def test_what_is_not_there_cannot_go_on(db: Connection) -> None:
    with pytest.raises(NotFound) as raised:
        await resume_execution(db, ExecutionId.mint())

    assert raised.value.entity == "execution"
    assert await actions(db) == []


@all_cases(
    ("fields", "field"),
    [
        ({"trigger_type": "boredom"}, "trigger_type"),
        ({"trigger_type": None}, "trigger_type"),
        ({"delay": -1}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"delay": 10**12}, "delay"),
    ],
)
async def test_arguments_that_cannot_be_are_refused_before_any_sql(
    fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValidationError, match=field) as raised:
        await resume_execution(NO_DATABASE, ExecutionId.mint(), **fields)

    assert raised.value.field == field


@bad_actors
async def test_an_actor_that_cannot_be_stored_is_refused_before_any_sql(actor: str) -> None:
    with pytest.raises(ValidationError, match="actor"):
        await resume_execution(NO_DATABASE, ExecutionId.mint(), actor=actor)


async def test_a_second_resume_is_refused_also_if_it_waited_for_the_first(
    db: Connection, another: Another, ff_engine: Engine, held: parked.Parked
) -> None:
    operator = await another()
    async with operator.transaction():
        await resume_execution(operator, held.id)
        resuming = await waiting(db, ff_engine.resume_execution(held.id))

    with pytest.raises(ExecutionNotSuspended):
        await resuming
    assert len(await actions(db, held.id)) == 1
    assert len(await claim(db, given.OTHER, ttl=30, limit=10)) == 1
