"""What a suspension is asked for is checked when the request is made."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from flowfabric.conditions import (
    AllConditions,
    AnyCondition,
    CountOf,
    OperatorOnly,
    Single,
    TimeoutOnly,
)
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.suspensions.suspension import (
    Fresh,
    NothingToSuspendFor,
    ResumePolicy,
    SatisfiedAlready,
    Suspended,
    SuspendRequest,
    Suspension,
    UsePending,
    require_suspended,
)
from flowfabric.errors import AlreadySatisfied, AlreadySuspended, ValidationError
from flowfabric.ids import ExecutionId
from flowfabric.states import SuspensionReason, TimeoutBehavior
from tests.all_cases import all_cases

LEASE = Lease(ExecutionId.mint(), 0, 1, uuid4())
ONE = (Fresh(waitpoint_key="a"),)
TWO = (Fresh(waitpoint_key="a"), Fresh(waitpoint_key="b"))
BOTH = AllConditions((Single("a"), Single("b")))
LATER = datetime(2100, 1, 1, tzinfo=UTC)


def refused(**fields: Any) -> ValidationError:
    fields.setdefault("bindings", ONE)
    fields.setdefault("condition", Single("a"))
    with pytest.raises(ValidationError) as raised:
        SuspendRequest(lease=LEASE, **fields)
    assert raised.value.code == "invalid_input"
    return raised.value


def test_what_is_not_given_has_a_default() -> None:
    request = SuspendRequest(lease=LEASE, bindings=ONE, condition=Single("a"))

    assert request.reason is SuspensionReason.WAITING_FOR_SIGNAL
    assert request.requested_by == "worker"
    assert request.timeout_behavior is TimeoutBehavior.FAIL
    assert request.resume_policy == ResumePolicy()
    assert isinstance(request.suspension_id, UUID)
    assert not request.is_handler
    assert request.suspension_id != SuspendRequest(lease=LEASE, bindings=ONE).suspension_id


def test_an_empty_idempotency_key_is_none_and_an_alias_of_a_behaviour_is_known() -> None:
    fields: dict[str, Any] = {"timeout_behavior": "auto_resume", "reason": "manual_pause"}
    request = Suspension(bindings=ONE, condition=Single("a"), idempotency_key="", **fields)

    assert request.idempotency_key is None
    assert request.timeout_behavior is TimeoutBehavior.AUTO_RESUME
    assert request.reason is SuspensionReason.MANUAL_PAUSE


@pytest.mark.parametrize(
    ("condition", "key"),
    [
        (Single("a", "go"), "a"),
        (AllConditions((CountOf(1, ("c", "d")), Single("e"))), "c"),
        (OperatorOnly(), None),
    ],
)
def test_the_first_fresh_waitpoint_takes_its_key_from_the_condition(
    condition: Any, key: str | None
) -> None:
    first = Fresh()
    more = tuple(Fresh(waitpoint_key=each) for each in "de" if key == "c")

    request = Suspension(bindings=(first, *more), condition=condition)

    assert isinstance(bound := request.bindings[0], Fresh)
    assert bound.waitpoint_key == (key or f"wpk:{first.waitpoint_id}")


@all_cases(
    ("fields", "code"),
    [
        ({"bindings": ()}, "waitpoints_empty"),
        ({"condition": Single("b")}, "waitpoint_key_mismatch"),
        (
            {"bindings": (*ONE, Fresh()), "condition": BOTH},
            "additional_waitpoint_binding_empty_key",
        ),
        ({"bindings": ONE, "condition": BOTH}, "referenced_waitpoint_key_missing_binding"),
        ({"bindings": TWO, "condition": CountOf(1, ("a",))}, "extra_binding_not_referenced"),
        ({"bindings": (UsePending(waitpoint_id=uuid4()), *TWO)}, "extra_binding_not_referenced"),
        ({"condition": TimeoutOnly()}, "timeout_only_without_deadline"),
        ({"condition": Single("a", "")}, "empty_signal_name"),
        ({"condition": AllConditions(())}, "allof_empty_members"),
        ({"condition": CountOf(0, ("a",))}, "count_n_zero"),
        ({"condition": CountOf(1, ())}, "count_waitpoints_empty"),
        ({"condition": CountOf(2, ("a",))}, "count_exceeds_waitpoint_set"),
        ({"condition": AnyCondition((Single("a"),))}, "anyof_for_handlers_only"),
    ],
)
def test_a_condition_that_cannot_be_waited_for_is_refused_by_its_code(
    fields: dict[str, Any], code: str
) -> None:
    assert refused(**fields).detail.startswith(code)


def test_a_condition_may_be_nested_four_deep() -> None:
    nested: Any = Single("a")
    for _ in range(4):
        nested = AllConditions((nested,))

    SuspendRequest(lease=LEASE, bindings=ONE, condition=nested)
    assert refused(condition=AllConditions((nested,))).detail.startswith("depth")


def test_the_key_of_a_pending_waitpoint_is_not_known_yet() -> None:
    pending = UsePending(waitpoint_id=uuid4())

    Suspension(bindings=(pending,), condition=Single("whatever"))
    Suspension(bindings=(pending, *ONE), condition=BOTH)
    Suspension(bindings=(pending,), condition=OperatorOnly())


def test_a_handler_may_wait_without_a_waitpoint_and_for_any_of_several_things() -> None:
    waits = Suspension(keeps_waitpoints=True, awaits_signals=("go",), signals_read=3)
    timer = Suspension(keeps_waitpoints=True, condition=TimeoutOnly(), timeout_at=LATER)
    any_of = Suspension(
        keeps_waitpoints=True,
        bindings=(UsePending(waitpoint_id=uuid4()), *ONE),
        condition=AnyCondition((Single("a"), CountOf(1, ("b",)))),
    )

    assert waits.is_handler
    assert timer.is_handler
    assert any_of.is_handler


@all_cases(
    ("fields", "field"),
    [
        ({"bindings": "a"}, "bindings"),
        ({"bindings": ["a"]}, "bindings"),
        ({"bindings": (Fresh(waitpoint_key="a\x00"),)}, "waitpoint_key"),
        ({"bindings": (UsePending(waitpoint_id="x"),)}, "waitpoint_id"),  # pyright: ignore
        ({"condition": "a"}, "condition"),
        ({"condition": AllConditions(None)}, "condition"),  # pyright: ignore
        ({"reason": "boredom"}, "reason"),
        ({"requested_by": "me"}, "requested_by"),
        ({"timeout_behavior": "explode"}, "timeout_behavior"),
        ({"timeout_at": datetime(2100, 1, 1)}, "timeout_at"),
        ({"timeout_at": "tomorrow"}, "timeout_at"),
        ({"resume_policy": {}}, "resume_policy"),
        ({"continuation_metadata_pointer": ""}, "continuation_metadata_pointer"),
        ({"idempotency_key": "x" * 1025}, "idempotency_key"),
        ({"idempotency_key": "a\x00"}, "idempotency_key"),
        ({"suspension_id": "x"}, "suspension_id"),
        ({"awaits_signals": "go"}, "awaits_signals"),
        ({"awaits_signals": ("",)}, "awaits_signals"),
        ({"awaits_signals": ("x" * 129,)}, "awaits_signals"),
        ({"awaits_joins": ("x",)}, "awaits_joins"),
        ({"signals_read": -1}, "signals_read"),
        ({"signals_read": 2**31}, "signals_read"),
        ({"signals_read": True}, "signals_read"),
    ],
)
def test_a_field_that_cannot_be_is_named(fields: dict[str, Any], field: str) -> None:
    error = refused(**fields)

    assert error.field == field
    assert field in str(error) or "unknown_condition" in str(error)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"resume_target": "active"}, "resume_target"),
        ({"resume_delay": -1}, "resume_delay"),
        ({"resume_delay": "soon"}, "resume_delay"),
    ],
)
def test_a_resume_policy_is_checked(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as raised:
        ResumePolicy(**fields)

    assert raised.value.field == field


def test_a_resume_policy_is_stored_in_milliseconds() -> None:
    policy = ResumePolicy(resume_delay=timedelta(seconds=1.5), consume_matched_signals=False)

    assert policy.as_json() == (
        '{"resume_target":"runnable","consume_matched_signals":false,'
        '"retain_signal_buffer_until_closed":false,"close_waitpoint_on_resume":true,'
        '"resume_delay_ms":1500}'
    )


def test_a_detail_is_cleaned() -> None:
    request = Suspension(bindings=ONE, condition=Single("a"), detail="a\x00b" + "x" * 9999)

    assert request.detail is not None
    assert request.detail.startswith("a\N{REPLACEMENT CHARACTER}b")
    assert len(request.detail.encode()) <= 4096


def test_a_caller_that_must_be_suspended_is_told_by_an_error() -> None:
    suspended = Suspended(execution_id=LEASE.execution_id, suspension_id=uuid4())
    kept = SatisfiedAlready(execution_id=LEASE.execution_id, suspension_id=uuid4())

    assert require_suspended(suspended) is suspended
    with pytest.raises(AlreadySatisfied, match=str(LEASE.execution_id.uuid)):
        require_suspended(kept)
    with pytest.raises(AlreadySatisfied):
        require_suspended(NothingToSuspendFor(execution_id=LEASE.execution_id))
    with pytest.raises(AlreadySuspended):
        require_suspended(AlreadySuspended(LEASE.execution_id))
