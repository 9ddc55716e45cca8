"""Every rule of a condition, by its code; and what passes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given

from flowfabric.conditions import (
    AllConditions,
    AnyCondition,
    Condition,
    CountOf,
    OperatorOnly,
    Single,
    TimeoutOnly,
    UnknownCondition,
    check_condition,
    check_timeout,
    keys_of,
)
from flowfabric.errors import ValidationError
from tests.all_cases import all_cases
from tests.conditions.signals import conditions

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ON_A = Single("a")


def nested(depth: int, leaf: Condition = ON_A) -> Condition:
    """The leaf in so many composites."""
    return leaf if depth == 0 else AllConditions((nested(depth - 1, leaf),))


def code(condition: Any, *keys: str, timeout: bool = True, handler: bool = False) -> str | None:
    """The code by which the condition is refused; None if it is not."""
    try:
        check_condition(condition, bindings=keys, timeout=timeout, handler=handler)
    except ValidationError as refused:
        return refused.detail.partition(":")[0]
    return None


REFUSED: list[tuple[str, Condition, tuple[str, ...]]] = [
    ("waitpoints_empty", Single("a"), ()),
    ("waitpoints_empty", OperatorOnly(), ()),
    ("waitpoint_key_mismatch", Single("a"), ("b",)),
    ("waitpoint_key_mismatch", Single("a"), ("b", "a")),
    ("additional_waitpoint_binding_empty_key", CountOf(1, ("a", "")), ("a", "")),
    ("waitpoint_binding_empty_key", Single(""), ("",)),
    ("referenced_waitpoint_key_missing_binding", CountOf(1, ("a", "b")), ("a", "c")),
    ("referenced_waitpoint_key_missing_binding", CountOf(1, ("a",)), ("b",)),
    ("referenced_waitpoint_key_missing_binding", AllConditions((Single("a"),)), ("b",)),
    ("extra_binding_not_referenced_by_condition", CountOf(1, ("a",)), ("a", "b")),
    ("extra_binding_not_referenced_by_condition", Single("a"), ("a", "b")),
    ("extra_binding_not_referenced_by_condition", OperatorOnly(), ("a", "b")),
    ("allof_empty_members", AllConditions(()), ("a",)),
    ("allof_empty_members", AllConditions((Single("a"), AllConditions(()))), ("a",)),
    ("count_n_zero", CountOf(0, ("a",)), ("a",)),
    ("count_n_zero", AllConditions((CountOf(0, ("a",)),)), ("a",)),
    ("count_waitpoints_empty", CountOf(1, ()), ("a",)),
    ("count_exceeds_waitpoint_set", CountOf(2, ("a",)), ("a",)),
    ("count_exceeds_waitpoint_set", CountOf(2, ("a", "a")), ("a",)),
    ("empty_signal_name", Single("a", ""), ("a",)),
    ("empty_signal_name", nested(3, Single("a", "")), ("a",)),
    ("empty_signal_name", CountOf(1, ("a",), name=""), ("a",)),
    ("depth", nested(5), ("a",)),
    ("depth", nested(4, CountOf(1, ("a",))), ("a",)),
    ("depth", nested(500), ("a",)),
    ("anyof_for_handlers_only", AnyCondition((Single("a"),)), ("a",)),
    ("anyof_not_at_root", AllConditions((AnyCondition((Single("a"),)),)), ("a",)),
    ("unknown_condition", UnknownCondition('"Later"'), ("a",)),
    ("unknown_condition", AllConditions((UnknownCondition('"Later"'),)), ("a",)),
]


@all_cases(("wanted", "condition", "keys"), REFUSED)
def test_a_condition_that_breaks_a_rule_is_refused_by_its_code(
    wanted: str, condition: Condition, keys: tuple[str, ...]
) -> None:
    assert code(condition, *keys) == wanted
    with pytest.raises(ValidationError) as refused:
        check_condition(condition, bindings=keys, timeout=True)
    assert (refused.value.code, refused.value.field) == ("invalid_input", "condition")


ACCEPTED: list[tuple[Condition, tuple[str, ...]]] = [
    (Single("a"), ("a",)),
    (Single("a", "x" * 128), ("a",)),
    (OperatorOnly(), ("anything",)),
    (TimeoutOnly(), ("anything",)),
    (nested(4), ("a",)),
    (nested(3, CountOf(1, ("a",))), ("a",)),
    (AllConditions((Single("a", "x"), Single("a", "y"))), ("a",)),
    (AllConditions((Single("a"), CountOf(2, ("b", "c")))), ("c", "a", "b")),
    (CountOf(2, ("a", "b")), ("a", "b")),
    (CountOf(9, ("a",), "signals"), ("a",)),
    (CountOf(9, ("a",), "sources"), ("a",)),
    (CountOf(1, ("a",)), ("a", "a")),
]


@all_cases(("condition", "keys"), ACCEPTED)
def test_any_other_condition_is_accepted(condition: Condition, keys: tuple[str, ...]) -> None:
    assert code(condition, *keys) is None


def test_a_wait_for_the_timeout_alone_needs_one() -> None:
    for condition in (TimeoutOnly(), AllConditions((Single("a"), TimeoutOnly()))):
        assert code(condition, "a", timeout=False) == "timeout_only_without_deadline"
        assert code(condition, "a", timeout=True) is None
    assert code(Single("a"), "a", timeout=False) is None


def test_a_handler_may_wait_for_any_of_several_or_for_no_waitpoint_at_all() -> None:
    several = AnyCondition((Single("a", "x"), nested(4, Single("b"))))

    assert code(several, "a", "b", handler=True) is None
    assert code(AnyCondition(()), handler=True) is None
    assert code(OperatorOnly(), handler=True) is None
    assert code(AnyCondition((nested(5),)), "a", handler=True) == "depth"
    assert code(AnyCondition((AnyCondition(()),)), handler=True) == "anyof_not_at_root"
    assert code(several, "a", handler=True) == "referenced_waitpoint_key_missing_binding"
    assert code(AnyCondition(()), "a", handler=True) == "extra_binding_not_referenced_by_condition"


WRONG: list[tuple[Any, str]] = [
    (Single(7), "waitpoint_key 7 must be a text"),  # type: ignore[arg-type]
    (Single("a", 7), "signal_name 7 must be a text"),  # type: ignore[arg-type]
    (Single("a", "x" * 129), "signal_name 'x+…' must be at most 128 bytes"),
    (Single("a", "\x00"), "signal_name .* must not contain a NUL"),
    (AllConditions("a"), "condition 'a' must have a tuple of members"),  # type: ignore[arg-type]
    (CountOf(1, "a"), "condition 'a' must have a tuple of members"),  # type: ignore[arg-type]
    (CountOf(1, (7,)), "waitpoint_key 7 must be a text"),  # type: ignore[arg-type]
    (CountOf(-1, ("a",)), "n -1 must be a whole number"),
    (CountOf(True, ("a",)), "n True must be a whole number"),
    (CountOf(1.0, ("a",)), "n 1.0 must be a whole number"),  # type: ignore[arg-type]
    (CountOf(1, ("a",), "colours"), "distinct 'colours' must be one of"),  # type: ignore[arg-type]
    (None, "unknown_condition: None is no condition"),
    ("Single", "unknown_condition: 'Single' is no condition"),
]


@all_cases(("condition", "message"), WRONG)
def test_a_value_of_another_type_is_named(condition: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        check_condition(condition, bindings=["a"], timeout=True)


@given(conditions)
def test_what_passes_names_exactly_the_waitpoints_that_are_bound(condition: Condition) -> None:
    keys = keys_of(condition)

    if code(condition, *keys, handler=True) is None and keys:
        assert code(condition, *keys[:-1], handler=True) is not None or len(keys) == 1
        assert code(condition, *keys, "elsewhere", handler=True) is not None


def test_a_timeout_may_be_a_little_late() -> None:
    check_timeout(NOW - timedelta(minutes=10), NOW)
    check_timeout(NOW + timedelta(days=1), NOW)

    with pytest.raises(ValidationError) as refused:
        check_timeout(NOW - timedelta(minutes=10, milliseconds=1), NOW)

    assert refused.value.detail.startswith("timeout_at_in_past: 2025-12-31T23:49")
    assert refused.value.field == "timeout_at"
