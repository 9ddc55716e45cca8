"""Conditions as JSON: `{"Single": …}`, `"OperatorOnly"`, `{"Composite": …}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from flowfabric.conditions.condition import (
    AllConditions,
    AnyCondition,
    Condition,
    CountOf,
    Distinct,
    OperatorOnly,
    Single,
    TimeoutOnly,
    UnknownCondition,
)
from flowfabric.errors import invalid_input

_COUNT_KINDS: Final[Mapping[Distinct, str]] = {
    "waitpoints": "DistinctWaitpoints",
    "signals": "DistinctSignals",
    "sources": "DistinctSources",
}
_DISTINCT: Final[Mapping[str, Distinct]] = {kind: word for word, kind in _COUNT_KINDS.items()}
_MOST_LEVELS: Final = 32


def encode_condition(condition: Condition) -> str:
    """The condition as it is stored."""
    return msgspec.json.encode(_node(condition)).decode()


def decode_condition(text: str | bytes) -> Condition:
    """The condition of this JSON; what is not known in it is an `UnknownCondition`.

    Raises `ValidationError(invalid_input)` for a text that is no JSON, or is nested absurdly deep.
    """
    try:
        found = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        raise invalid_input("condition", None, "must be JSON") from None
    return _condition(found, 0)


def _node(condition: Condition) -> object:
    match condition:
        case Single():
            key, matcher = condition.waitpoint_key, _matcher(condition.name)
            return {"Single": {"waitpoint_key": key, "matcher": matcher}}
        case OperatorOnly():
            return "OperatorOnly"
        case TimeoutOnly():
            return "TimeoutOnly"
        case AllConditions():
            members = [_node(member) for member in condition.members]
            return {"Composite": {"kind": "AllOf", "members": members}}
        case CountOf():
            count: dict[str, object] = {"kind": "Count", "n": condition.n}
            count["count_kind"] = _COUNT_KINDS[condition.distinct]
            if condition.name is not None:
                count["matcher"] = _matcher(condition.name)
            return {"Composite": {**count, "waitpoints": list(condition.waitpoints)}}
        case AnyCondition():
            return {"AnyOf": [_node(member) for member in condition.members]}
        case UnknownCondition():
            return msgspec.Raw(condition.json.encode())


def _matcher(name: str | None) -> object:
    return "Wildcard" if name is None else {"ByName": name}


def _condition(node: object, level: int) -> Condition:
    if level > _MOST_LEVELS:
        raise invalid_input("condition", None, f"must not have more than {_MOST_LEVELS} levels")
    if node == "OperatorOnly":
        return OperatorOnly()
    if node == "TimeoutOnly":
        return TimeoutOnly()
    known: Condition | None = None
    if isinstance(node, dict) and len(cast("dict[str, object]", node)) == 1:
        [(kind, body)] = cast("dict[str, object]", node).items()
        if kind == "AnyOf" and isinstance(body, list):
            known = AnyCondition(_conditions(cast("list[object]", body), level))
        elif isinstance(body, dict):
            known = _known(kind, cast("dict[str, object]", body), level)
    return UnknownCondition(msgspec.json.encode(node).decode()) if known is None else known


def _known(kind: str, body: dict[str, object], level: int) -> Condition | None:
    matched, name = _read_matcher(body.get("matcher"))
    match kind, body.get("kind"):
        case "Single", _:
            key = body.get("waitpoint_key")
            if matched and isinstance(key, str) and body.get("matcher") is not None:
                return Single(key, name)
        case "Composite", "AllOf":
            members = body.get("members")
            if isinstance(members, list):
                return AllConditions(_conditions(cast("list[object]", members), level))
        case "Composite", "Count":
            n, distinct = body.get("n"), _DISTINCT.get(str(body.get("count_kind")))
            keys = _texts(body.get("waitpoints"))
            if matched and type(n) is int and distinct is not None and keys is not None:
                return CountOf(n, keys, distinct, name)
        case _:
            pass
    return None


def _conditions(nodes: list[object], level: int) -> tuple[Condition, ...]:
    return tuple([_condition(node, level + 1) for node in nodes])


def _read_matcher(matcher: object) -> tuple[bool, str | None]:
    """Is the matcher known, and the name that it wants."""
    if matcher is None or matcher == "Wildcard":
        return True, None
    if isinstance(matcher, dict) and len(cast("dict[str, object]", matcher)) == 1:
        name = cast("dict[str, object]", matcher).get("ByName")
        return isinstance(name, str), name if isinstance(name, str) else None
    return False, None


def _texts(given: object) -> tuple[str, ...] | None:
    texts = cast("list[object]", given) if isinstance(given, list) else None
    if texts is None or not all(isinstance(text, str) for text in texts):
        return None
    return tuple(cast("list[str]", texts))
