"""Signals by name: into the inbox of an execution, and it goes on if it waits for them."""

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.conditions import AnyCondition, Single
from flowfabric.db.rows import Connection
from flowfabric.db.steps import stepped
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.suspensions.observe_signals import observe_signals
from flowfabric.engine.suspensions.send_signal import NewSignal, send_signal, send_signals
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.engine.suspensions.suspension import ResumePolicy, UsePending
from flowfabric.errors import NotFound, TargetNotSignalable, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.policy import ExecutionPolicy
from flowfabric.states import SignalEffect
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import NO_DATABASE, TERMINAL, execution
from tests.engine.joins.parents import parent
from tests.engine.suspensions import parked
from tests.engine.suspensions.parked import handler

BUFFERED = SignalEffect.BUFFERED_IN_INBOX
RESUMED = SignalEffect.RESUME_CONDITION_SATISFIED


def to(execution_id: ExecutionId, name: str = "go", **fields: Any) -> NewSignal:
    return NewSignal(execution_id=execution_id, signal_name=name, **fields)


async def send(db: Connection, *signals: NewSignal) -> list[Any]:
    """What `send_signals` answers, in a transaction of its own."""
    async with db.transaction():
        return await send_signals(db, signals)


async def inbox(db: Connection) -> list[dict[str, Any]]:
    """Every signal of every inbox, in order."""
    return [
        dict(record)
        for record in await db.fetch(
            "SELECT * FROM ff.signal_inbox ORDER BY execution_id, signal_seq"
        )
    ]


async def events(db: Connection) -> list[dict[str, Any]]:
    return [
        dict(record) for record in await db.fetch("SELECT * FROM ff.signal_event ORDER BY event_id")
    ]


# What is stored.


async def test_a_signal_waits_in_the_inbox(db: Connection, clock: Clock) -> None:
    execution_id = await given.created(db, tags={"shop.tenant": "a"})
    signal = to(
        execution_id,
        "approved",
        payload=b"{}",
        encoding="json",
        source_type="user",
        source_identity="ann",
        correlation_id="c-1",
        idempotency_key="mail-77",
    )

    [answer] = await send(db, signal)

    now = await clock.now_ms()
    assert answer == SignalAccepted(signal_id=signal.signal_id, effect=BUFFERED)
    assert not answer.resumed
    [stored] = await inbox(db)
    assert stored == {
        "partition_key": execution_id.partition_key,
        "execution_id": execution_id.uuid,
        "signal_seq": 1,
        "signal_id": signal.signal_id,
        "accepted_at_ms": now,
        "consumed": False,
        "signal_name": "approved",
        "source_type": "user",
        "source_identity": "ann",
        "correlation_id": "c-1",
        "idempotency_key": "mail-77",
        "encoding": "json",
        "payload": b"{}",
    }
    [event] = await events(db)
    assert event == event | {
        "execution_id": execution_id.uuid,
        "signal_id": signal.signal_id,
        "waitpoint_id": None,
        "occurred_at_ms": now,
        "signal_name": "approved",
        "effect": "buffered_in_inbox",
        "source_type": "user",
        "source_identity": "ann",
    }
    assert msgspec.json.decode(event["tags"]) == {"shop.tenant": "a"}
    assert (await given.row(db, execution_id))["signal_seq"] == 1


async def test_signals_are_numbered_in_the_order_given(db: Connection) -> None:
    one, two = await given.created(db), await given.created(db)

    await send(db, to(one, "a"), to(two, "b"), to(one, "c"))
    await send(db, to(one, "d"))

    found = [
        (row["execution_id"], row["signal_seq"], row["signal_name"]) for row in await inbox(db)
    ]
    assert found == [
        (one.uuid, 1, "a"),
        (one.uuid, 2, "c"),
        (one.uuid, 3, "d"),
        (two.uuid, 1, "b"),
    ]
    assert [event["signal_name"] for event in await events(db)] == ["a", "b", "c", "d"]


async def sleeping(db: Connection, engine: Engine) -> ExecutionId:
    lease = await given.claimed(db)
    await delay(db, [DelayRequest(lease=lease, delay=60)])
    return lease.execution_id


async def with_children(db: Connection, engine: Engine) -> ExecutionId:
    family = await parent(engine, db)
    await family.spawn("a")
    await family.put_down()
    return family.parent


async def never_claimed(db: Connection, engine: Engine) -> ExecutionId:
    return await given.created(db)


async def running(db: Connection, engine: Engine) -> ExecutionId:
    return (await given.claimed(db)).execution_id


async def waiting_for_another(db: Connection, engine: Engine) -> ExecutionId:
    return (await parked.suspended(db, handler(await given.claimed(db), "other"))).id


async def waiting_for_an_outsider(db: Connection, engine: Engine) -> ExecutionId:
    await parked.keyed(db)
    return (await parked.parked(db)).id


@pytest.mark.parametrize(
    "begin",
    [
        never_claimed,
        running,
        sleeping,
        with_children,
        waiting_for_another,
        waiting_for_an_outsider,
    ],
)
async def test_whatever_does_not_wait_for_the_signal_gets_it_all_the_same(
    db: Connection,
    ff_engine: Engine,
    begin: Callable[[Connection, Engine], Awaitable[ExecutionId]],
) -> None:
    execution_id = await begin(db, ff_engine)
    before = await given.standing(db, execution_id)

    [answer] = await send(db, to(execution_id))

    assert answer.effect is BUFFERED
    assert await given.standing(db, execution_id) == before
    assert len(await inbox(db)) == 1


@pytest.mark.parametrize("state", ["waiting", "delayed", "blocked", "released", "retrying"])
async def test_a_runnable_execution_gets_it_whatever_holds_it_back(
    db: Connection, state: str
) -> None:
    [answer] = await send(db, to(await execution(db, state)))

    assert answer.effect is BUFFERED


# Resumes.


async def test_an_execution_that_waits_for_the_name_goes_on(db: Connection, clock: Clock) -> None:
    held = await parked.suspended(db, handler(await given.claimed(db), "paid", "go"))
    await clock.advance(5)
    signal = to(held.id, "go")

    [answer] = await send(db, signal)

    assert answer == SignalAccepted(signal_id=signal.signal_id, effect=RESUMED)
    assert answer.resumed
    state = "runnable/eligible_now/waiting_for_worker/none/attempt_interrupted → resumable"
    assert await given.standing(db, held.id) == state
    stored, now = await parked.suspension(db, held.id), await clock.now_ms()
    assert stored == stored | {
        "satisfied_at_ms": now,
        "closed_at_ms": now,
        "close_reason": "resumed",
        "closer_signal_id": signal.signal_id,
        "timeout_at_ms": None,
    }
    assert [event["effect"] for event in await events(db)] == ["resume_condition_satisfied"]
    assert await given.completion_events(db, held.id) == ["resumable"]
    lease = await parked.taken_up(db, held.id)
    assert lease.attempt_index == held.lease.attempt_index
    assert await observe_signals(db, lease) == []  # it is in the inbox
    assert await parked.broken(db) == []


async def test_of_several_signals_the_first_that_is_awaited_resumes(db: Connection) -> None:
    held = await parked.suspended(db, handler(await given.claimed(db), "a", "b"))

    answers = await send(db, to(held.id, "x"), to(held.id, "b"), to(held.id, "a"))

    assert [answer.effect for answer in answers] == [BUFFERED, RESUMED, BUFFERED]
    assert [event["effect"] for event in await events(db)] == [
        "buffered_in_inbox",
        "resume_condition_satisfied",
        "buffered_in_inbox",
    ]
    assert (await parked.suspension(db, held.id))["closer_signal_id"] == answers[1].signal_id


async def test_the_delay_of_the_suspension_is_waited_for(db: Connection, clock: Clock) -> None:
    policy = ResumePolicy(resume_delay=30)
    held = await parked.suspended(db, handler(await given.claimed(db), "go", resume_policy=policy))

    await send(db, to(held.id))

    vector = "runnable/not_eligible_until_time/waiting_for_resume_delay/none/attempt_interrupted"
    assert await given.standing(db, held.id) == f"{vector} → delayed"
    assert await claim(db, given.OTHER, ttl=30) == []
    await clock.advance(30)
    assert await promote_due(db, 10) == 1
    assert await given.public_state(db, held.id) == "resumable"
    await parked.taken_up(db, held.id)


async def test_the_waitpoints_of_a_handler_stay(db: Connection, clock: Clock) -> None:
    await parked.keyed(db)
    lease = await given.claimed(db)
    waitpoint = await parked.pending(db, lease, "a")
    bound = (UsePending(waitpoint_id=waitpoint.waitpoint_id),)
    condition = AnyCondition((Single("a"),))
    held = await parked.suspended(db, handler(lease, "go", bindings=bound, condition=condition))

    await send(db, to(held.id))

    assert [each["state"] for each in await parked.waitpoints(db, held.id)] == ["pending"]


# Refusals, in their order.


async def test_what_is_not_there_gets_no_signal(db: Connection) -> None:
    missing, absurd = ExecutionId.mint(), ExecutionId(10**6, uuid4())

    answers = await send(db, to(missing, "\x00"), to(absurd))

    assert [type(answer) for answer in answers] == [NotFound, NotFound]
    assert str(missing) in str(answers[0])
    assert await inbox(db) == []


@pytest.mark.parametrize("state", TERMINAL)
async def test_what_has_ended_gets_no_signal(db: Connection, clock: Clock, state: str) -> None:
    execution_id = await execution(db, state)
    before = await given.everything(db)

    [answer] = await send(db, to(execution_id, ""))

    assert isinstance(answer, TargetNotSignalable)
    assert answer.public_state == state
    assert await given.everything(db) == before


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        ("x" * 129, "128 bytes"),
        ("ü" * 65, "128 bytes"),
        ("a\nb", "control"),
        ("a\x00", "NUL"),
        ("\ud800", "surrogate"),
    ],
)
async def test_a_name_has_1_to_128_printable_bytes(db: Connection, name: str, why: str) -> None:
    execution_id = await given.created(db)
    before = await given.everything(db)

    refused, accepted = await send(
        db, to(execution_id, name, payload=bytes(65_537)), to(execution_id, "x" * 128)
    )

    assert isinstance(refused, ValidationError)
    assert (refused.code, refused.field) == ("invalid_input", "signal_name")
    assert why in str(refused)
    assert isinstance(accepted, SignalAccepted)
    assert len(await given.everything(db)) == len(before) + 2


async def test_a_payload_has_at_most_64_kib(db: Connection) -> None:
    execution_id = await given.created(db, policy=ExecutionPolicy(max_signals_per_execution=1))
    await send(db, to(execution_id, payload=bytes(65_536)))
    before = await given.everything(db)

    [refused] = await send(db, to(execution_id, payload=bytes(65_537)))

    assert await given.everything(db) == before

    assert isinstance(refused, ValidationError)
    assert (refused.code, refused.field) == ("payload_too_large", "payload")
    assert "65537" in str(refused)


async def test_an_execution_takes_as_many_signals_as_its_policy_says(db: Connection) -> None:
    execution_id = await given.created(db, policy=ExecutionPolicy(max_signals_per_execution=2))
    unlimited = await given.created(db, policy=ExecutionPolicy(max_signals_per_execution=0))

    one, two, three = await send(
        db, to(execution_id, idempotency_key="k"), to(execution_id), to(execution_id)
    )
    before = await given.everything(db)
    [late] = await send(db, to(execution_id, idempotency_key="k"))

    assert await given.everything(db) == before
    assert isinstance(one, SignalAccepted)
    assert isinstance(two, SignalAccepted)
    for refused in (three, late):
        assert isinstance(refused, ValidationError)
        assert refused.code == "signal_limit_exceeded"
        assert f"{execution_id} has got 2 signals, which is its limit" in str(refused)
    assert {type(each) for each in await send(db, to(unlimited))} == {SignalAccepted}


async def test_ten_thousand_signals_are_the_limit_of_an_execution_without_a_policy(
    db: Connection,
) -> None:
    execution_id = await given.created(db)
    await db.execute("UPDATE ff.exec_core SET signal_seq = 9999")

    last, refused = await send(db, to(execution_id), to(execution_id))

    assert isinstance(last, SignalAccepted)
    assert isinstance(refused, ValidationError)
    assert refused.code == "signal_limit_exceeded"


# Idempotency.


async def test_a_known_key_is_a_duplicate_also_within_one_call(db: Connection) -> None:
    one, two = await given.created(db), await given.created(db)
    first = to(one, idempotency_key="k")

    answers = await send(db, first, to(one, "other", idempotency_key="k"))
    before = await given.everything(db)
    [later] = await send(db, to(one, idempotency_key="k"))

    duplicate = SignalDuplicate(existing_signal_id=first.signal_id)
    assert answers == [SignalAccepted(signal_id=first.signal_id, effect=BUFFERED), duplicate]
    assert later == duplicate
    assert await given.everything(db) == before
    [elsewhere] = await send(db, to(two, idempotency_key="k"))
    assert isinstance(elsewhere, SignalAccepted)


async def test_an_empty_key_is_none(db: Connection) -> None:
    execution_id = await given.created(db)

    answers = await send(db, *[to(execution_id, idempotency_key="") for _ in range(2)])

    assert {type(answer) for answer in answers} == {SignalAccepted}


async def test_a_duplicate_does_not_resume(db: Connection) -> None:
    lease = await given.claimed(db)
    await send(db, to(lease.execution_id, idempotency_key="k"))
    held = await parked.suspended(db, handler(lease, "go", signals_read=1))

    [answer] = await send(db, to(held.id, idempotency_key="k"))

    assert isinstance(answer, SignalDuplicate)
    assert await given.public_state(db, held.id) == "suspended"


# Many, and one.


async def test_a_refusal_does_not_spoil_its_neighbours(db: Connection) -> None:
    one, two = await given.created(db), await given.created(db)

    answers = await send(db, to(one), to(ExecutionId.mint()), to(two, ""), to(two))

    assert [type(answer) for answer in answers] == [
        SignalAccepted,
        NotFound,
        ValidationError,
        SignalAccepted,
    ]
    assert await send(db) == []


async def test_many_signals_take_a_constant_number_of_statements(db: Connection) -> None:
    held = [await parked.suspended(db, handler(await given.claimed(db), "go")) for _ in range(20)]
    seen: list[str] = []

    async def note(_conn: Connection, statement: str) -> None:
        seen.append(statement)

    with stepped(note):
        answers = await send(db, *[to(each.id) for each in held])

    assert {answer.effect for answer in answers} == {RESUMED}
    assert len(seen) == 4, seen
    assert len(await claim(db, given.OTHER, ttl=30, limit=100)) == 20


async def test_a_call_takes_at_most_a_thousand() -> None:
    with pytest.raises(ValidationError, match="signals 1001 must be at most 1000"):
        await send_signals(NO_DATABASE, [to(ExecutionId.mint())] * 1001)


async def test_a_single_signal_raises_its_refusal(db: Connection, ff_engine: Engine) -> None:
    execution_id = await given.created(db)

    answer = await ff_engine.send_signal(to(execution_id))

    assert isinstance(answer, SignalAccepted)
    with pytest.raises(NotFound):
        async with db.transaction():
            await send_signal(db, to(ExecutionId.mint()))


@all_cases(
    ("fields", "field"),
    [
        ({"name": 7}, "signal_name"),
        ({"payload": "text"}, "payload"),
        ({"encoding": ""}, "encoding"),
        ({"signal_id": "x"}, "signal_id"),
        ({"source_type": ""}, "source_type"),
        ({"source_identity": "a\x00"}, "source_identity"),
        ({"correlation_id": "x" * 1025}, "correlation_id"),
        ({"idempotency_key": "x" * 1025}, "idempotency_key"),
    ],
)
def test_a_field_that_cannot_be_stored_is_refused_when_the_signal_is_made(
    fields: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        to(ExecutionId.mint(), **fields)

    assert raised.value.field == field
