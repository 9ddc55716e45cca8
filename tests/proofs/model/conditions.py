"""Resume conditions, evaluated once more for the model."""

from __future__ import annotations

from collections.abc import Iterator

from flowfabric.conditions import AllConditions, AnyCondition, Condition, CountOf, Match, Single
from tests.proofs.model.wait_records import Received

Signals = dict[str, list[Received]]


def leaves(condition: Condition) -> Iterator[Single | CountOf]:
    if isinstance(condition, AllConditions | AnyCondition):
        for member in condition.members:
            yield from leaves(member)
    elif isinstance(condition, Single | CountOf):
        yield condition


def keys(leaf: Single | CountOf) -> tuple[str, ...]:
    return (leaf.waitpoint_key,) if isinstance(leaf, Single) else leaf.waitpoints


def counted(leaf: Single | CountOf, signals: Signals) -> list[Received]:
    """The first signal to arrive of each kind that the leaf tells apart."""
    arrived = [(key, each) for key in keys(leaf) for each in signals.get(key, ())]
    arrived.sort(key=lambda one: one[1].accepted_at_ms)
    found: dict[object, Received] = {}
    for key, each in arrived:
        if leaf.name in (None, each.signal_name):
            found.setdefault(_kind(leaf, key, each), each)
    return list(found.values())


def _kind(leaf: Single | CountOf, key: str, signal: Received) -> object:
    if isinstance(leaf, Single):
        return "any"
    return {"waitpoints": key, "signals": signal.signal_id, "sources": signal.source}[leaf.distinct]


def holds(condition: Condition, signals: Signals) -> bool:
    match condition:
        case AllConditions():
            return all(holds(member, signals) for member in condition.members)
        case AnyCondition():
            return any(holds(member, signals) for member in condition.members)
        case CountOf():
            return len(counted(condition, signals)) >= condition.n
        case Single():
            return bool(counted(condition, signals))
        case _:
            return False


def found(condition: Condition, signals: Signals) -> list[Received]:
    """The signals because of which the condition holds, in the order of their arrival."""
    members = condition.members if isinstance(condition, AnyCondition) else (condition,)
    good = [leaf for member in members if holds(member, signals) for leaf in leaves(member)]
    each_once = {id(each): each for leaf in good for each in counted(leaf, signals)}
    return sorted(each_once.values(), key=lambda each: each.accepted_at_ms)


def match_of(condition: Condition, key: str, signals: Signals) -> Match:
    aimed = [leaf for leaf in leaves(condition) if key in keys(leaf)]
    last = signals[key][-1]
    if not aimed:
        return "not_in_condition"
    if all(leaf.name not in (None, last.signal_name) for leaf in aimed):
        return "matcher_failed"
    counts = any(last is each for leaf in aimed for each in counted(leaf, signals))
    return "matched" if counts else "duplicate_satisfier"
