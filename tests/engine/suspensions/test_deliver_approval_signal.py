"""An operator approves: no token, the lane must be right, and each operator counts."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from flowfabric.conditions import CountOf, Single
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.suspensions.deliver_approval_signal import deliver_approval_signal
from flowfabric.engine.suspensions.signal_answers import SignalAccepted, SignalDuplicate
from flowfabric.engine.suspensions.waitpoint import Waitpoint
from flowfabric.errors import (
    EngineError,
    NotFound,
    TargetNotSignalable,
    ValidationError,
    WaitpointClosed,
)
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState, SignalEffect
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Action, actions
from tests.engine.keys.test_rotate_waitpoint_hmac_secret_all import rotate
from tests.engine.suspensions.given_suspended import (
    kept,
    leased,
    pending,
    signal_events,
    suspended,
    waitpoint_row,
)


async def approve(
    db: Connection, waitpoint: Waitpoint, name: str = "approved", **options: Any
) -> SignalAccepted | SignalDuplicate:
    options = {"lane_id": "default", "idempotency_suffix": "1", **options}
    async with db.transaction():
        return await deliver_approval_signal(
            db,
            options.pop("execution_id", waitpoint.execution_id),
            options.pop("waitpoint_id", waitpoint.waitpoint_id),
            name,
            **options,
        )


async def refused(db: Connection, waitpoint: Waitpoint, **options: Any) -> EngineError:
    """Why the approval is refused; nothing is written."""
    before = await given.everything(db)
    with pytest.raises(EngineError) as error:
        await approve(db, waitpoint, **options)
    assert await given.everything(db) == before
    return error.value


async def test_an_approval_resumes_what_waits_for_it(db: Connection) -> None:
    held = await suspended(db, Single("a", "approved"))

    answer = await approve(db, held.waitpoints["a"], operator_identity="ann")

    assert isinstance(answer, SignalAccepted)
    assert answer.effect is SignalEffect.RESUME_CONDITION_SATISFIED
    assert await given.public_state(db, held.execution_id) is PublicState.RESUMABLE
    [signal] = (await waitpoint_row(db, held.waitpoints["a"]))["signals"]
    assert (signal["signal_category"], signal["source_type"], signal["source_identity"]) == (
        "approval",
        "operator",
        "ann",
    )
    assert signal["payload_hex"] is None
    [event] = await signal_events(db, held.execution_id)
    assert (event["source_type"], event["source_identity"]) == ("operator", "ann")


async def test_an_approval_leaves_one_operator_event(db: Connection) -> None:
    held = await suspended(db, Single("a", "approved"))
    waitpoint = held.waitpoints["a"]

    answer = await approve(db, waitpoint, operator_identity="ann", reason="four eyes")
    assert isinstance(answer, SignalAccepted)
    facts = {
        "waitpoint_id": str(waitpoint.waitpoint_id),
        "signal_name": "approved",
        "signal_id": str(answer.signal_id),
        "effect": "resume_condition_satisfied",
    }
    told = [Action("waitpoint_answered", "ann", "four eyes", facts)]
    assert await actions(db, held.execution_id) == told


async def test_a_name_that_does_not_match_is_stored_and_does_not_resume(db: Connection) -> None:
    held = await suspended(db, Single("a", "approved"))

    answer = await approve(db, held.waitpoints["a"], "rejected")

    assert isinstance(answer, SignalAccepted)
    assert (answer.effect, answer.match) == (SignalEffect.APPENDED_TO_WAITPOINT, "matcher_failed")
    assert await kept(db, held.waitpoints["a"]) == ["rejected"]
    assert await given.public_state(db, held.execution_id) is PublicState.SUSPENDED


async def test_two_operators_are_two_sources_if_they_are_named(db: Connection) -> None:
    held = await suspended(db, CountOf(2, ("a",), "sources", "approved"))
    waitpoint = held.waitpoints["a"]

    for suffix, who in enumerate(("ann", "ann", "bob")):
        last = await approve(db, waitpoint, operator_identity=who, idempotency_suffix=str(suffix))

    assert isinstance(last, SignalAccepted)
    assert last.effect is SignalEffect.RESUME_CONDITION_SATISFIED


async def test_operators_that_are_not_named_are_one_source(db: Connection) -> None:
    held = await suspended(db, CountOf(2, ("a",), "sources", "approved"))

    for suffix in ("1", "2", "3"):
        last = await approve(db, held.waitpoints["a"], idempotency_suffix=suffix)

    assert isinstance(last, SignalAccepted)
    assert last.match == "duplicate_satisfier"


async def test_a_repeated_name_and_suffix_is_a_duplicate(db: Connection, clock: Clock) -> None:
    waitpoint = await pending(db, await leased(db))
    first = await approve(db, waitpoint, dedup_ttl=10)
    assert isinstance(first, SignalAccepted)

    again = await approve(db, waitpoint, dedup_ttl=10)

    assert again == SignalDuplicate(existing_signal_id=first.signal_id)
    assert len(await actions(db)) == 1, "a duplicate leaves no event"
    assert isinstance(await approve(db, waitpoint, idempotency_suffix="2"), SignalAccepted)
    assert isinstance(await approve(db, waitpoint, "rejected"), SignalAccepted)
    assert await db.fetchval("SELECT array_agg(idempotency_key) FROM ff.signal_dedup") == [
        "approval:approved:1",
        "approval:approved:2",
        "approval:rejected:1",
    ]


async def test_an_approval_is_refused_in_this_order(db: Connection, clock: Clock) -> None:
    lease = await leased(db, ttl=900)
    waitpoint = await pending(db, lease, expires_in=1)
    nowhere = {"execution_id": ExecutionId.mint(), "lane_id": "mail", "waitpoint_id": uuid4()}

    missing = await refused(db, waitpoint, **nowhere)
    assert (type(missing), missing.code) == (NotFound, "execution_not_found")
    lane = await refused(db, waitpoint, lane_id="mail", waitpoint_id=uuid4())
    assert isinstance(lane, ValidationError)
    assert (lane.code, lane.field) == ("invalid_input", "lane_id")
    assert "lane_mismatch" in lane.detail
    absent = await refused(db, waitpoint, waitpoint_id=uuid4())
    assert (type(absent), absent.code) == (NotFound, "waitpoint_not_found")
    await clock.advance(1)
    assert isinstance(await refused(db, waitpoint), WaitpointClosed)
    await complete(db, [Completion(lease)])
    assert isinstance(await refused(db, waitpoint), TargetNotSignalable)


async def test_the_waitpoint_of_another_execution_does_not_exist(db: Connection) -> None:
    waitpoint = await pending(db, await leased(db))
    other = await given.created(db)

    error = await refused(db, waitpoint, execution_id=other)

    assert error.code == "waitpoint_not_found"


async def test_an_operator_may_approve_when_the_key_of_the_waitpoint_is_past_its_grace_or_deleted(
    db: Connection, clock: Clock
) -> None:
    first, second = [await pending(db, await leased(db)) for _ in range(2)]
    await rotate(db, "k2", "b2" * 32, grace=1)
    await clock.advance(1.001)

    assert isinstance(await approve(db, first), SignalAccepted)
    await rotate(db, "k3", "b3" * 32, grace=1)
    assert await db.fetchval("SELECT array_agg(kid ORDER BY kid) FROM ff.waitpoint_hmac") == [
        "k2",
        "k3",
    ]
    assert isinstance(await approve(db, second), SignalAccepted)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"lane_id": ""}, "lane_id '' must not be empty"),
    ({"idempotency_suffix": ""}, "idempotency_suffix '' must not be empty"),
    ({"idempotency_suffix": "x" * 101}, "idempotency_suffix 'x+…' must be at most 100 bytes"),
    ({"name": ""}, "signal_name '' must not be empty"),
    ({"name": "x" * 129}, "signal_name 'x+…' must be at most 128 bytes"),
    ({"operator_identity": "x" * 1025}, "source_identity 'x+…' must be at most 1024 bytes"),
    ({"waitpoint_id": "a"}, "waitpoint_id 'a' must be of type UUID"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
async def test_a_bad_argument_is_named(
    db: Connection, options: dict[str, Any], message: str
) -> None:
    waitpoint = await pending(db, await leased(db))

    with pytest.raises(ValidationError, match=message):
        raise await refused(db, waitpoint, **options)


async def test_an_approval_passes_through_the_engine(ff_engine: Engine, db: Connection) -> None:
    held = await suspended(db, Single("a", "approved"))

    answer = await ff_engine.deliver_approval_signal(
        held.execution_id,
        held.waitpoint_id("a"),
        "approved",
        lane_id="default",
        idempotency_suffix="1",
    )

    assert isinstance(answer, SignalAccepted)
