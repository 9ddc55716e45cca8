"""Conditions as JSON: as the text says, back again, and nothing unknown is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.conditions import (
    AllConditions,
    AnyCondition,
    Condition,
    CountOf,
    OperatorOnly,
    Single,
    TimeoutOnly,
    UnknownCondition,
    decode_condition,
    encode_condition,
    is_satisfied,
    keys_of,
)
from flowfabric.errors import ValidationError
from tests.all_cases import all_cases
from tests.conditions.signals import Arrived, conditions

WRITTEN: list[tuple[Condition, Any]] = [
    (Single("k", "go"), {"Single": {"waitpoint_key": "k", "matcher": {"ByName": "go"}}}),
    (Single("k"), {"Single": {"waitpoint_key": "k", "matcher": "Wildcard"}}),
    (OperatorOnly(), "OperatorOnly"),
    (TimeoutOnly(), "TimeoutOnly"),
    (
        AllConditions((Single("k"), OperatorOnly())),
        {
            "Composite": {
                "kind": "AllOf",
                "members": [
                    {"Single": {"waitpoint_key": "k", "matcher": "Wildcard"}},
                    "OperatorOnly",
                ],
            }
        },
    ),
    (
        CountOf(2, ("a", "b"), "sources", "go"),
        {
            "Composite": {
                "kind": "Count",
                "n": 2,
                "count_kind": "DistinctSources",
                "matcher": {"ByName": "go"},
                "waitpoints": ["a", "b"],
            }
        },
    ),
    (
        CountOf(1, ("a",), "signals"),
        {
            "Composite": {
                "kind": "Count",
                "n": 1,
                "count_kind": "DistinctSignals",
                "waitpoints": ["a"],
            }
        },
    ),
    (
        AnyCondition((CountOf(1, ("a",)), TimeoutOnly())),
        {
            "AnyOf": [
                {
                    "Composite": {
                        "kind": "Count",
                        "n": 1,
                        "count_kind": "DistinctWaitpoints",
                        "waitpoints": ["a"],
                    }
                },
                "TimeoutOnly",
            ]
        },
    ),
]


@all_cases(("condition", "written"), WRITTEN)
def test_a_condition_is_written_and_read_as_the_text_says(
    condition: Condition, written: Any
) -> None:
    assert json.loads(encode_condition(condition)) == written
    assert decode_condition(json.dumps(written)) == condition
    assert decode_condition(json.dumps(written).encode()) == condition


@given(conditions)
def test_every_condition_comes_back(condition: Condition) -> None:
    assert decode_condition(encode_condition(condition)) == condition


@pytest.mark.parametrize("matcher", ["Wildcard", None])
def test_a_count_may_say_that_any_name_counts(matcher: Any) -> None:
    body = {"kind": "Count", "n": 1, "count_kind": "DistinctSignals", "waitpoints": ["a"]}

    read = decode_condition(json.dumps({"Composite": {**body, "matcher": matcher}}))

    assert read == CountOf(1, ("a",), "signals")


def test_a_field_that_is_added_later_is_passed_over() -> None:
    later = {"Single": {"waitpoint_key": "k", "matcher": "Wildcard", "since": 7}}

    assert decode_condition(json.dumps(later)) == Single("k")


COUNT = {"kind": "Count", "n": 1, "count_kind": "DistinctSignals", "waitpoints": ["a"]}
UNKNOWN: list[Any] = [
    None,
    7,
    "Never",
    [],
    {},
    {"Single": {}, "AnyOf": []},
    {"Single": {"waitpoint_key": "a"}},
    {"Single": {"waitpoint_key": "a", "matcher": None}},
    {"Single": {"waitpoint_key": "a", "matcher": "Regex"}},
    {"Single": {"waitpoint_key": "a", "matcher": {"ByPrefix": "x"}}},
    {"Single": {"waitpoint_key": "a", "matcher": {"ByName": 7}}},
    {"Single": {"waitpoint_key": 7, "matcher": "Wildcard"}},
    {"Single": "a"},
    {"AnyOf": "a"},
    {"Composite": {"kind": "NoneOf", "members": []}},
    {"Composite": {"kind": "AllOf", "members": "a"}},
    {"Composite": {**COUNT, "count_kind": "DistinctColours"}},
    {"Composite": {**COUNT, "count_kind": None}},
    {"Composite": {**COUNT, "n": True}},
    {"Composite": {**COUNT, "n": "1"}},
    {"Composite": {**COUNT, "waitpoints": "a"}},
    {"Composite": {**COUNT, "waitpoints": ["a", 7]}},
    {"Composite": {**COUNT, "matcher": "Regex"}},
]


@all_cases("node", UNKNOWN)
def test_what_is_not_known_is_kept_as_it_is_and_never_satisfied(node: Any) -> None:
    read = decode_condition(json.dumps(node))

    assert isinstance(read, UnknownCondition)
    assert json.loads(encode_condition(read)) == node
    assert not is_satisfied(read, {"a": [Arrived()]})
    assert keys_of(read) == []


def test_an_unknown_member_spoils_what_needs_all_and_nothing_else() -> None:
    known = {"Single": {"waitpoint_key": "a", "matcher": "Wildcard"}}
    everything = decode_condition(
        json.dumps({"Composite": {"kind": "AllOf", "members": [known, "Never"]}})
    )
    anything = decode_condition(json.dumps({"AnyOf": ["Never", known]}))

    assert not is_satisfied(everything, {"a": [Arrived()]})
    assert is_satisfied(anything, {"a": [Arrived()]})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(("Count", "a", "Wildcard")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("Single", "Composite", "AnyOf", "kind", "n", "waitpoints", "members")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_can_be_read(value: Any) -> None:
    read = decode_condition(json.dumps(value))

    assert decode_condition(encode_condition(read)) == read


@all_cases("text", ["", "{", "nonsense", b"\xff", "[" * 100_000, '{"AnyOf":[' * 40 + "]}" * 40])
def test_a_text_that_is_no_json_or_absurdly_deep_is_refused(text: Any) -> None:
    with pytest.raises(ValidationError, match="condition"):
        decode_condition(text)
