"""Conditions are evaluated: a pure function of the signals that have arrived."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Final

from flowfabric.conditions.condition import (
    AllConditions,
    AnyCondition,
    Condition,
    CountOf,
    Match,
    OperatorOnly,
    Received,
    S,
    Signals,
    Single,
    TimeoutOnly,
)

OPERATOR_ONLY: Final = "__operator_only__"
TIMEOUT_ONLY: Final = "__timeout_only__"
"""What stands for the names of signals where no signal counts."""


def is_satisfied(condition: Condition, signals: Signals[S]) -> bool:
    """Do the signals that have arrived satisfy the condition?"""
    match condition:
        case Single():
            return any(True for _ in _counted(condition, signals))
        case AllConditions():
            members = condition.members
            return bool(members) and all(is_satisfied(member, signals) for member in members)
        case CountOf():
            return 0 < condition.n <= sum(1 for _ in _counted(condition, signals))
        case AnyCondition():
            return any(is_satisfied(member, signals) for member in condition.members)
        case _:
            return False


def can_be_satisfied(condition: Condition, signals: Signals[S], takes: Container[str]) -> bool:
    """Is it satisfied, or may signals satisfy it that come on the waitpoints of these keys?"""
    if is_satisfied(condition, signals):
        return True
    match condition:
        case Single():
            return condition.waitpoint_key in takes
        case AllConditions():
            members = condition.members
            return all(can_be_satisfied(member, signals, takes) for member in members)
        case CountOf(distinct="waitpoints"):
            had = {key for key, _ in _counted(condition, signals)}
            possible = [key for key in keys_of(condition) if key in had or key in takes]
            return condition.n <= len(possible)
        case CountOf():
            return any(key in takes for key in condition.waitpoints)
        case AnyCondition():
            return any(can_be_satisfied(member, signals, takes) for member in condition.members)
        case _:
            return False


def satisfiers(condition: Condition, signals: Signals[S]) -> list[S]:
    """The signals that satisfy the condition, by time of arrival; none if it is not satisfied.

    Of each leaf the first signal that matches; of a count the first of each that is distinct.
    """
    if not is_satisfied(condition, signals):
        return []
    if isinstance(condition, AnyCondition):
        satisfied = [each for each in condition.members if is_satisfied(each, signals)]
        return counted_signals(AnyCondition(tuple(satisfied)), signals)
    return counted_signals(condition, signals)


def remaining(condition: Condition, signals: Signals[S]) -> Condition:
    """The condition without those of its members that are satisfied."""
    if not isinstance(condition, AllConditions):
        return condition
    left = [each for each in condition.members if not is_satisfied(each, signals)]
    members = tuple([remaining(each, signals) for each in left])
    return members[0] if len(members) == 1 else AllConditions(members)


def counted_signals(condition: Condition, signals: Signals[S]) -> list[S]:
    """The signals that count towards the condition, satisfied or not, by time of arrival."""
    places = dict.fromkeys(_counted(condition, signals))
    return sorted((_on(signals, key)[at] for key, at in places), key=lambda each: each.accepted_at)


def match_of_last(condition: Condition, waitpoint_key: str, signals: Signals[S]) -> Match:
    """How the last signal on that waitpoint relates to the condition."""
    aimed = [leaf for leaf in _leaves(condition) if waitpoint_key in keys_of(leaf)]
    arrived = _on(signals, waitpoint_key)
    if not aimed:
        return "not_in_condition"
    if not arrived or not any(leaf.name in (None, arrived[-1].signal_name) for leaf in aimed):
        return "matcher_failed"
    counts = (waitpoint_key, len(arrived) - 1) in set(_counted(condition, signals))
    return "matched" if counts else "duplicate_satisfier"


def keys_of(condition: Condition) -> list[str]:
    """The keys of the waitpoints that the condition names, each once, as met depth-first."""
    keys: dict[str, None] = {}
    for leaf in _leaves(condition):
        found = (leaf.waitpoint_key,) if isinstance(leaf, Single) else leaf.waitpoints
        keys.update(dict.fromkeys(found))
    return list(keys)


def required_names(condition: Condition, waitpoint_key: str) -> list[str]:
    """The names that the condition wants on that waitpoint; none means any name."""
    if isinstance(condition, OperatorOnly):
        return [OPERATOR_ONLY]
    if isinstance(condition, TimeoutOnly):
        return [TIMEOUT_ONLY]
    aimed = [leaf for leaf in _leaves(condition) if waitpoint_key in keys_of(leaf)]
    return list(dict.fromkeys(leaf.name for leaf in aimed if leaf.name is not None))


def _leaves(condition: Condition) -> Iterator[Single | CountOf]:
    match condition:
        case Single() | CountOf():
            yield condition
        case AllConditions() | AnyCondition():
            for member in condition.members:
                yield from _leaves(member)
        case _:
            pass


def _counted(condition: Condition, signals: Signals[S]) -> Iterator[tuple[str, int]]:
    """The places, as key and index, of the signals that count; one may count for two leaves."""
    for leaf in _leaves(condition):
        seen: set[object] = set()
        for key, at, signal in _matching(leaf, signals):
            what = _distinct(leaf)(key, signal)
            if what not in seen:
                seen.add(what)
                yield key, at


def _matching(leaf: Single | CountOf, signals: Signals[S]) -> list[tuple[str, int, S]]:
    """The signals that match a leaf, by time of arrival."""
    found = [
        (key, at, signal)
        for key in keys_of(leaf)
        for at, signal in enumerate(_on(signals, key))
        if leaf.name in (None, signal.signal_name)
    ]
    return sorted(found, key=lambda each: each[2].accepted_at)


def _distinct(leaf: Single | CountOf) -> Callable[[str, Received], object]:
    """What must differ between two signals for both to count; one counts for a single condition."""
    if isinstance(leaf, Single):
        return lambda key, signal: None
    match leaf.distinct:
        case "waitpoints":
            return lambda key, signal: key
        case "signals":
            return lambda key, signal: signal.signal_id
        case "sources":
            return lambda key, signal: (signal.source_type, signal.source_identity)


def _on(signals: Signals[S], key: str) -> Sequence[S]:
    """The signals of a waitpoint; a value that is no list counts as none."""
    found = signals.get(key, ())
    return found if isinstance(found, list | tuple) else ()
