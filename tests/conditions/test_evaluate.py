"""Which signals satisfy a condition, and which of them count; a pure function."""

from __future__ import annotations

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
    can_be_satisfied,
    counted_signals,
    is_satisfied,
    keys_of,
    match_of_last,
    remaining,
    required_names,
    satisfiers,
)
from tests.all_cases import all_cases
from tests.conditions.signals import KEYS, Arrived, arrivals, arrived, conditions

Arrivals = dict[str, list[Arrived]]
A1, A2, B3 = arrived(1), arrived(2), arrived(3)

SATISFIED: list[tuple[Condition, Arrivals, bool]] = [
    (Single("a", "yes"), {}, False),
    (Single("a", "yes"), {"a": [arrived(1, "no")]}, False),
    (Single("a", "yes"), {"b": [A1]}, False),
    (Single("a", "yes"), {"a": [arrived(1, "no"), A2]}, True),
    (Single("a"), {"a": [arrived(1, "whatever")]}, True),
    (OperatorOnly(), {"a": [A1]}, False),
    (TimeoutOnly(), {"a": [A1]}, False),
    (AllConditions(()), {"a": [A1]}, False),
    (AllConditions((Single("a"), Single("b"))), {"a": [A1, A2]}, False),
    (AllConditions((Single("a"), Single("b"))), {"a": [A1], "b": [B3]}, True),
    (AllConditions((Single("a", "yes"), Single("a", "no"))), {"a": [A1]}, False),
    (AllConditions((Single("a", "yes"), Single("a", "no"))), {"a": [A1, arrived(2, "no")]}, True),
    (AllConditions((Single("a"), OperatorOnly())), {"a": [A1]}, False),
    (AllConditions((AllConditions((Single("a"),)), CountOf(1, ("b",)))), {"a": [A1]}, False),
    (
        AllConditions((AllConditions((Single("a"),)), CountOf(1, ("b",)))),
        {"a": [A1], "b": [B3]},
        True,
    ),
    (CountOf(2, ("a", "b")), {"a": [A1, A2]}, False),
    (CountOf(2, ("a", "b")), {"a": [A1], "b": [B3]}, True),
    (CountOf(2, ("a", "b")), {"a": [A1], "c": [B3]}, False),
    (CountOf(1, ("a", "b", "c")), {"c": [A1]}, True),
    (CountOf(2, ("a",), "signals"), {"a": [A1, A1]}, False),
    (CountOf(2, ("a",), "signals"), {"a": [A1, A2]}, True),
    (CountOf(2, ("a",), "sources"), {"a": [A1, A2]}, False),
    (CountOf(2, ("a",), "sources"), {"a": [A1, arrived(2, source="ann")]}, True),
    (CountOf(2, ("a",), "signals", "yes"), {"a": [A1, arrived(2, "no")]}, False),
    (CountOf(2, ("a",), "signals"), {"a": [A1, arrived(2, "no")]}, True),
    (CountOf(0, ("a",)), {"a": [A1]}, False),
    (AnyCondition(()), {"a": [A1]}, False),
    (AnyCondition((Single("a"), Single("b"))), {"b": [A1]}, True),
    (AnyCondition((TimeoutOnly(), AllConditions((Single("a"), Single("b"))))), {"b": [A1]}, False),
]


@all_cases(("condition", "signals", "answer"), SATISFIED)
def test_a_condition_is_satisfied_as_the_text_says(
    condition: Condition, signals: Arrivals, answer: bool
) -> None:
    assert is_satisfied(condition, signals) is answer
    assert bool(satisfiers(condition, signals)) is answer


def test_two_types_of_source_are_two_sources() -> None:
    bot = Arrived(source_type="bot")

    assert is_satisfied(CountOf(2, ("a",), "sources"), {"a": [Arrived(), bot]})


@pytest.mark.parametrize("value", [None, {}, "text", 7])
def test_a_value_that_is_no_list_counts_as_no_signals(value: Any) -> None:
    assert not is_satisfied(Single("a"), {"a": value})
    assert satisfiers(CountOf(1, ("a", "b")), {"a": value, "b": [A1]}) == [A1]


SATISFIERS: list[tuple[Condition, Arrivals, list[int]]] = [
    (Single("a", "yes"), {"a": [arrived(1, "no"), arrived(2), arrived(3)]}, [2]),
    (AllConditions((Single("b"), Single("a"))), {"a": [A1, A2], "b": [B3]}, [1, 3]),
    (AllConditions((Single("a"), Single("a", "yes"))), {"a": [arrived(1, "no"), A2, B3]}, [1, 2]),
    (AllConditions((Single("a"), Single("a"))), {"a": [A1, A2]}, [1]),
    (CountOf(1, ("a", "b")), {"a": [A2], "b": [A1, B3]}, [1, 2]),
    (
        CountOf(2, ("a", "b"), "sources"),
        {"a": [arrived(4, source="ann")], "b": [arrived(3, source="ann"), arrived(5)]},
        [3, 5],
    ),
    (
        AnyCondition((Single("a"), AllConditions((Single("b"), Single("c"))))),
        {"a": [A2], "b": [A1]},
        [2],
    ),
    (Single("a"), {"b": [A1]}, []),
]


@all_cases(("condition", "signals", "ids"), SATISFIERS)
def test_the_first_of_each_leaf_satisfies_and_of_a_count_the_first_of_each_that_differs(
    condition: Condition, signals: Arrivals, ids: list[int]
) -> None:
    assert [each.signal_id.int for each in satisfiers(condition, signals)] == ids


def test_signals_of_one_instant_stay_in_the_order_of_their_arrival() -> None:
    first, second = arrived(9, at=5), arrived(1, at=5)

    found = satisfiers(CountOf(2, ("a",), "signals"), {"a": [first, second]})

    assert found == [first, second]


MATCHES: list[tuple[Condition, Arrivals, str]] = [
    (Single("a", "yes"), {"a": [A1]}, "matched"),
    (Single("a", "yes"), {"a": [arrived(1, "no")]}, "matcher_failed"),
    (Single("b"), {"a": [A1]}, "not_in_condition"),
    (OperatorOnly(), {"a": [A1]}, "not_in_condition"),
    (CountOf(2, ("a", "b")), {"a": [A1, A2]}, "duplicate_satisfier"),
    (CountOf(2, ("a",), "sources"), {"a": [A1, A2]}, "duplicate_satisfier"),
    (CountOf(2, ("a",), "sources"), {"a": [A1, arrived(2, source="ann")]}, "matched"),
    (CountOf(3, ("a",), "signals"), {"a": [A1, A1]}, "duplicate_satisfier"),
    (AllConditions((Single("a"), Single("b"))), {"a": [A1, A2]}, "duplicate_satisfier"),
    (AllConditions((Single("a", "x"), CountOf(2, ("a",), "signals"))), {"a": [A1, A2]}, "matched"),
    (AnyCondition((Single("b"), Single("a", "yes"))), {"a": [A1]}, "matched"),
]


@all_cases(("condition", "signals", "match"), MATCHES)
def test_the_last_signal_is_told_how_it_relates_to_the_condition(
    condition: Condition, signals: Arrivals, match: str
) -> None:
    assert match_of_last(condition, "a", signals) == match


def test_the_keys_are_those_met_depth_first_each_once() -> None:
    condition = AllConditions(
        (CountOf(1, ("c", "a")), AllConditions((Single("b"), Single("a"))), OperatorOnly())
    )

    assert keys_of(condition) == ["c", "a", "b"]
    assert keys_of(TimeoutOnly()) == []


def test_the_names_wanted_on_a_waitpoint_are_those_of_all_matchers_aimed_at_it() -> None:
    condition = AllConditions(
        (
            Single("a", "second"),
            Single("b", "other"),
            CountOf(1, ("b", "a"), name="first"),
            Single("a"),
            Single("a", "second"),
        )
    )

    assert required_names(condition, "a") == ["second", "first"]
    assert required_names(condition, "b") == ["other", "first"]
    assert required_names(condition, "c") == []
    assert required_names(Single("a"), "a") == []
    assert required_names(OperatorOnly(), "a") == ["__operator_only__"]
    assert required_names(TimeoutOnly(), "a") == ["__timeout_only__"]


# For any condition and any signals.


def model(condition: Condition, signals: Arrivals) -> bool:
    """The table of the text, another time."""
    match condition:
        case Single(key, name):
            return any(name in (None, each.signal_name) for each in signals.get(key, []))
        case AllConditions(members):
            return len(members) > 0 and all(model(member, signals) for member in members)
        case AnyCondition(members):
            return any(model(member, signals) for member in members)
        case CountOf(n, keys, distinct, name):
            found = {
                {
                    "waitpoints": key,
                    "signals": each.signal_id,
                    "sources": (each.source_type, each.source_identity),
                }[distinct]
                for key in keys
                for each in signals.get(key, [])
                if name in (None, each.signal_name)
            }
            return len(found) >= n
        case _:
            return False


@given(conditions, arrivals)
def test_the_answer_is_that_of_the_model(condition: Condition, signals: Arrivals) -> None:
    assert is_satisfied(condition, signals) is model(condition, signals)


@given(conditions, arrivals)
def test_the_satisfiers_alone_satisfy_and_come_in_order(
    condition: Condition, signals: Arrivals
) -> None:
    found = satisfiers(condition, signals)
    needed = {id(each) for each in found}
    alone = {key: [s for s in listed if id(s) in needed] for key, listed in signals.items()}

    assert bool(found) is is_satisfied(condition, signals)
    assert is_satisfied(condition, alone) is is_satisfied(condition, signals)
    assert [each.accepted_at for each in found] == sorted(each.accepted_at for each in found)


@given(conditions, arrivals)
def test_what_does_not_count_can_be_dropped(condition: Condition, signals: Arrivals) -> None:
    needed = {id(each) for each in counted_signals(condition, signals)}
    rest = {key: [s for s in listed if id(s) in needed] for key, listed in signals.items()}

    assert is_satisfied(condition, rest) is is_satisfied(condition, signals)
    assert counted_signals(condition, rest) == counted_signals(condition, signals)


@given(conditions, arrivals, st.sampled_from(KEYS))
def test_one_signal_more_never_takes_the_answer_back_and_counts_only_if_it_matched(
    condition: Condition, signals: Arrivals, key: str
) -> None:
    last = Arrived(accepted_at=9)
    more = {**signals, key: [*signals.get(key, []), last]}

    assert is_satisfied(condition, more) >= is_satisfied(condition, signals)
    if match_of_last(condition, key, more) != "matched":
        assert is_satisfied(condition, more) is is_satisfied(condition, signals)


@all_cases(
    ("condition", "signals", "left"),
    [
        (Single("a"), {}, Single("a")),
        (CountOf(2, ("a", "b")), {"a": [A1]}, CountOf(2, ("a", "b"))),
        (AllConditions((Single("a"), Single("b"))), {"a": [A1]}, Single("b")),
        (
            AllConditions((Single("a"), Single("b"), Single("c"))),
            {"a": [A1]},
            AllConditions((Single("b"), Single("c"))),
        ),
        (
            AllConditions((AllConditions((Single("a"), Single("b"))), Single("c"))),
            {"a": [A1], "c": [B3]},
            Single("b"),
        ),
    ],
)
def test_members_that_are_satisfied_do_not_remain(
    condition: Condition, signals: Arrivals, left: Condition
) -> None:
    assert remaining(condition, signals) == left


@given(conditions, arrivals, arrivals)
def test_what_remains_is_satisfied_together_with_the_condition(
    condition: Condition, first: Arrivals, more: Arrivals
) -> None:
    both = {key: [*first.get(key, ()), *more.get(key, ())] for key in KEYS}
    if not is_satisfied(condition, first):
        assert is_satisfied(remaining(condition, first), both) == is_satisfied(condition, both)


BOTH = AllConditions((Single("a", "yes"), Single("b")))
CLOSED: list[tuple[Condition, Arrivals, str, bool]] = [
    (Single("a"), {}, "a", True),
    (Single("a"), {}, "b", False),
    (Single("a", "yes"), {"a": [arrived(1, "no")]}, "b", False),
    (Single("a"), {"a": [A1]}, "", True),
    (BOTH, {}, "ab", True),
    (BOTH, {}, "b", False),
    (BOTH, {"a": [A1]}, "b", True),
    (BOTH, {"a": [arrived(1, "no")]}, "b", False),
    (CountOf(2, ("a", "b", "c")), {}, "ab", True),
    (CountOf(2, ("a", "b", "c")), {}, "a", False),
    (CountOf(2, ("a", "b", "c")), {"b": [A1]}, "a", True),
    (CountOf(2, ("a", "b", "c")), {"b": [A1]}, "b", False),
    (CountOf(3, ("a", "b"), "signals"), {}, "a", True),
    (CountOf(3, ("a", "b"), "sources"), {"a": [A1]}, "", False),
    (AnyCondition((Single("a"), Single("b"))), {}, "b", True),
    (AnyCondition((Single("a"), Single("b"))), {}, "c", False),
    (OperatorOnly(), {}, "a", False),
]


@all_cases(("condition", "signals", "takes", "can"), CLOSED)
def test_whether_signals_can_still_satisfy_a_condition(
    condition: Condition, signals: Arrivals, takes: str, can: bool
) -> None:
    assert can_be_satisfied(condition, signals, takes) is can


@given(conditions, arrivals, st.frozensets(st.sampled_from(KEYS)), arrivals)
def test_what_comes_on_open_waitpoints_satisfies_only_what_can_be(
    condition: Condition, signals: Arrivals, takes: frozenset[str], more: Arrivals
) -> None:
    later = {
        key: [*signals.get(key, []), *(more.get(key, []) if key in takes else [])]
        for key in {*signals, *more}
    }

    assert can_be_satisfied(condition, signals, takes) or not is_satisfied(condition, later)
