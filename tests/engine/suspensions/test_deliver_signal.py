"""A signal by token: buffered, appended, or the one that lets the execution go on."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import msgspec
import pytest

from flowfabric.conditions import AllConditions, AnyCondition, CountOf, OperatorOnly, Single
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.engine.suspensions.read_waitpoints import read_waitpoints
from flowfabric.engine.suspensions.signal_answers import SignalAccepted
from flowfabric.states import PublicState, SignalEffect
from flowfabric.testing import Clock
from tests import given
from tests.engine.suspensions.given_suspended import (
    accepted,
    effects,
    kept,
    leased,
    pending,
    signal_events,
    suspended,
    suspension,
    waitpoint_row,
)

BUFFERED = SignalEffect.BUFFERED_FOR_PENDING_WAITPOINT
APPENDED = SignalEffect.APPENDED_TO_WAITPOINT
RESUMES = SignalEffect.RESUME_CONDITION_SATISFIED


async def test_a_pending_waitpoint_buffers_the_signal_and_the_execution_is_untouched(
    db: Connection, clock: Clock
) -> None:
    waitpoint = await pending(db, await leased(db))
    before = await given.row(db, waitpoint.execution_id)
    given_id = uuid4()

    answer = await accepted(
        db,
        waitpoint,
        "go",
        signal_id=given_id,
        signal_category="webhook",
        source_type="user",
        source_identity="ann",
        correlation_id="mail-7",
        payload=b"\x00\xff",
        encoding="json",
    )

    assert answer == SignalAccepted(signal_id=given_id, effect=BUFFERED, match=None)
    row = await waitpoint_row(db, waitpoint)
    now_ms = await clock.now_ms()
    assert row["signals"] == [
        {
            "signal_id": str(given_id),
            "signal_name": "go",
            "signal_category": "webhook",
            "source_type": "user",
            "source_identity": "ann",
            "correlation_id": "mail-7",
            "accepted_at": now_ms,
            "payload_hex": "00ff",
            "encoding": "json",
        }
    ]
    assert (row["signal_count"], row["last_signal_at_ms"], row["state"]) == (1, now_ms, "pending")
    assert await given.row(db, waitpoint.execution_id) == before
    assert await given.completion_events(db, waitpoint.execution_id) == []


async def test_signals_stay_in_the_order_of_their_arrival_and_come_back_whole(
    db: Connection, clock: Clock
) -> None:
    waitpoint = await pending(db, await leased(db))
    for name, payload in (("one", b"1"), ("two", None)):
        await accepted(db, waitpoint, name, payload=payload)
        await clock.advance(1)

    found = await read_waitpoints(db, waitpoint.execution_id, [waitpoint.waitpoint_id, uuid4()])

    [read] = found.values()
    one, two = read.signals
    assert (one.signal_name, one.payload, one.source_type, one.correlation_id) == (
        "one",
        b"1",
        "external",
        "",
    )
    assert (two.signal_name, two.payload, two.encoding) == ("two", None, None)
    assert two.accepted_at - one.accepted_at == timedelta(seconds=1)
    assert read.last_signal_at == two.accepted_at
    other = await given.created(db)
    assert await read_waitpoints(db, other, [waitpoint.waitpoint_id]) == {}


async def test_a_signal_that_satisfies_the_condition_resumes_the_execution(
    db: Connection, clock: Clock
) -> None:
    held = await suspended(db, Single("a", "go"))
    other = await accepted(db, held.waitpoints["a"], "stay")

    answer = await accepted(db, held.waitpoints["a"], "go", payload=b"42")

    assert (other.effect, other.match) == (APPENDED, "matcher_failed")
    assert (answer.effect, answer.match) == (RESUMES, "matched")
    assert await given.vector(db, held.execution_id) == (
        "runnable",
        "eligible_now",
        "waiting_for_worker",
        "none",
        "attempt_interrupted",
        "resumable",
    )
    row = await waitpoint_row(db, held.waitpoints["a"])
    assert (row["state"], row["close_reason"], row["closed_at_ms"]) == (
        "closed",
        "resumed",
        await clock.now_ms(),
    )
    closed = await suspension(db, held.execution_id)
    assert (closed["close_reason"], closed["closer_signal_id"]) == ("resumed", answer.signal_id)
    assert closed["satisfied_at_ms"] == closed["closed_at_ms"] == await clock.now_ms()
    satisfying = msgspec.json.decode(closed["all_satisfier_signals"])
    assert [(each["signal_name"], each["payload_hex"]) for each in satisfying] == [("go", "3432")]
    assert await given.completion_events(db, held.execution_id) == ["resumable"]
    assert await db.fetchval("SELECT dispatched_at_ms IS NOT NULL FROM ff.completion_event")
    assert await effects(db, held.execution_id) == [("stay", APPENDED), ("go", RESUMES)]


async def test_the_resumed_attempt_goes_on_under_the_same_index(db: Connection) -> None:
    held = await suspended(db, Single("a"))
    await accepted(db, held.waitpoints["a"])

    [task] = await claim(db, given.OTHER, ttl=30)

    assert task.lease.execution_id == held.execution_id
    assert task.lease.attempt_index == held.lease.attempt_index
    assert task.lease.lease_epoch > held.lease.lease_epoch


async def test_every_waitpoint_of_the_execution_is_closed_by_the_resume(db: Connection) -> None:
    held = await suspended(db, CountOf(1, ("a", "b")))
    await accepted(db, held.waitpoints["b"])

    states = [
        (row["state"], row["close_reason"])
        for row in [await waitpoint_row(db, each) for each in held.waitpoints.values()]
    ]
    assert states == [("closed", "resumed")] * 2


async def test_a_handler_that_keeps_its_waitpoints_finds_them_pending_with_their_signals(
    db: Connection,
) -> None:
    condition = AnyCondition((Single("a", "go"), Single("b")))
    held = await suspended(db, condition, keeps_waitpoints=True)
    answer = await accepted(db, held.waitpoints["a"], "go")

    assert answer.effect is RESUMES
    assert await given.public_state(db, held.execution_id) is PublicState.RESUMABLE
    rows = [await waitpoint_row(db, each) for each in held.waitpoints.values()]
    assert [(row["state"], row["suspension_id"]) for row in rows] == [("pending", None)] * 2
    assert await kept(db, held.waitpoints["a"]) == ["go"]
    again = await accepted(db, held.waitpoints["a"], "go")
    assert again.effect is BUFFERED


async def test_all_of_several_waitpoints_must_have_been_signalled(db: Connection) -> None:
    held = await suspended(db, AllConditions((Single("a", "go"), Single("b", "go"))))

    answers = [
        await accepted(db, held.waitpoints[key], name)
        for key, name in (("a", "go"), ("a", "go"), ("b", "no"), ("b", "go"))
    ]

    assert [(answer.effect, answer.match) for answer in answers] == [
        (APPENDED, "matched"),
        (APPENDED, "duplicate_satisfier"),
        (APPENDED, "matcher_failed"),
        (RESUMES, "matched"),
    ]
    closed = await suspension(db, held.execution_id)
    satisfying = msgspec.json.decode(closed["all_satisfier_signals"])
    assert [each["signal_id"] for each in satisfying] == [
        str(answers[0].signal_id),
        str(answers[3].signal_id),
    ]


async def test_a_quorum_counts_each_source_once(db: Connection) -> None:
    held = await suspended(db, CountOf(2, ("a",), "sources", "approve"))
    waitpoint = held.waitpoints["a"]

    answers = [
        await accepted(db, waitpoint, "approve", source_type="user", source_identity=who)
        for who in ("ann", "ann", "bob")
    ]

    assert [(answer.effect, answer.match) for answer in answers] == [
        (APPENDED, "matched"),
        (APPENDED, "duplicate_satisfier"),
        (RESUMES, "matched"),
    ]


async def test_no_signal_resumes_what_waits_for_an_operator(db: Connection) -> None:
    held = await suspended(db, OperatorOnly(), "a")

    answer = await accepted(db, held.waitpoints["a"])

    assert (answer.effect, answer.match) == (APPENDED, "not_in_condition")
    assert await given.public_state(db, held.execution_id) is PublicState.SUSPENDED


async def test_a_pending_waitpoint_beside_the_suspension_still_buffers(db: Connection) -> None:
    held = await suspended(db, Single("a"))
    await db.execute(
        "UPDATE ff.waitpoint_pending SET state = 'pending', suspension_id = NULL"
        " WHERE waitpoint_id = $1",
        held.waitpoint_id("a"),
    )

    answer = await accepted(db, held.waitpoints["a"])

    assert (answer.effect, answer.match) == (BUFFERED, None)
    assert await given.public_state(db, held.execution_id) is PublicState.SUSPENDED


# Delay.


@pytest.mark.parametrize(
    ("policy", "delay", "seconds"),
    [(None, 60, 60), (30, None, 30), (30, 5, 5)],
)
async def test_the_execution_resumes_after_the_delay_of_the_signal_or_of_its_suspension(
    db: Connection, clock: Clock, policy: float | None, delay: float | None, seconds: int
) -> None:
    held = await suspended(db, Single("a"), resume_delay=policy)

    await accepted(db, held.waitpoints["a"], resume_delay=delay)

    assert (await given.vector(db, held.execution_id))[1:] == (
        "not_eligible_until_time",
        "waiting_for_resume_delay",
        "none",
        "attempt_interrupted",
        "delayed",
    )
    await clock.advance(seconds - 0.001)
    assert await promote_due(db, limit=10) == 0
    await clock.advance(0.001)
    assert await promote_due(db, limit=10) == 1
    assert await given.public_state(db, held.execution_id) is PublicState.RESUMABLE


@pytest.mark.parametrize("policy", [None, 0, 9])
async def test_a_delay_of_zero_is_none(db: Connection, policy: float | None) -> None:
    held = await suspended(db, Single("a"), resume_delay=policy)

    await accepted(db, held.waitpoints["a"], resume_delay=0)

    assert await given.public_state(db, held.execution_id) is PublicState.RESUMABLE


# Events.


async def test_each_accepted_signal_leaves_one_event(db: Connection, clock: Clock) -> None:
    lease = await leased(db, tags={"shop.tenant": "acme"})
    waitpoint = await pending(db, lease)

    answer = await accepted(db, waitpoint, source_type="user", source_identity="ann")

    [event] = await signal_events(db, lease.execution_id)
    assert event["signal_id"] == answer.signal_id
    assert event["waitpoint_id"] == waitpoint.waitpoint_id
    assert (event["signal_name"], event["effect"]) == ("go", BUFFERED)
    assert (event["source_type"], event["source_identity"]) == ("user", "ann")
    assert event["occurred_at_ms"] == await clock.now_ms()
    assert event["lease_epoch"] == lease.lease_epoch
    assert msgspec.json.decode(event["tags"]) == {"shop.tenant": "acme"}


async def test_signals_pass_through_the_engine(ff_engine: Engine, db: Connection) -> None:
    lease = await leased(db)
    waitpoint = await ff_engine.create_waitpoint(lease, "a", expires_in=60)

    answer = await ff_engine.deliver_signal(
        lease.execution_id, waitpoint.waitpoint_id, waitpoint.token.reveal(), "go"
    )

    assert isinstance(answer, SignalAccepted)
    found = await ff_engine.read_waitpoints(lease.execution_id, [waitpoint.waitpoint_id])
    assert [each.signal_id for each in found[waitpoint.waitpoint_id].signals] == [answer.signal_id]
