"""Conditions are checked before anything waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, cast, get_args

from flowfabric.conditions.condition import (
    AllConditions,
    AnyCondition,
    Condition,
    CountOf,
    Distinct,
    OperatorOnly,
    Single,
    TimeoutOnly,
)
from flowfabric.conditions.evaluate import keys_of
from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import check_is_text, check_text

MAX_DEPTH: Final = 4
"""How deep composites may be nested; a condition without a composite has depth 0."""
MAX_NAME: Final = 128
"""How many bytes the name of a signal may have."""
SKEW: Final = timedelta(minutes=10)
"""How long ago a timeout may be when it is given: clocks differ."""
_DISTINCT: Final[tuple[str, ...]] = get_args(Distinct)


def check_condition(
    condition: Condition, *, bindings: Sequence[str], timeout: bool, handler: bool = False
) -> None:
    """The condition can be waited for on waitpoints with these keys, the primary one first.

    `timeout` says whether the suspension has one. The condition of a `handler` may have
    `AnyCondition` at its root, and no waitpoint at all. Raises `ValidationError(invalid_input)`;
    its detail begins with a code, such as `count_n_zero`.
    """
    keys = tuple(bindings)
    if not keys and not handler:
        raise _refused("waitpoints_empty", "at least one waitpoint must be given")
    if isinstance(condition, AnyCondition):
        if not handler:
            raise _refused("anyof_for_handlers_only", "use a count of 1")
        for member in _members(condition.members):
            _check_node(member, depth=0, timeout=timeout)
    else:
        _check_node(condition, depth=0, timeout=timeout)
    _check_bindings(condition, keys)


def check_timeout(timeout_at: datetime, now: datetime) -> None:
    """The timeout is not past, as far as clocks can be trusted; raises `timeout_at_in_past`."""
    if timeout_at + SKEW < now:
        raise ValidationError(
            "invalid_input", f"timeout_at_in_past: {timeout_at.isoformat()}", field="timeout_at"
        )


def _check_bindings(condition: Condition, keys: tuple[str, ...]) -> None:
    for place, key in enumerate(keys):
        if not check_is_text(key, field="waitpoint_key"):
            which = "additional_waitpoint_binding" if place else "waitpoint_binding"
            raise _refused(f"{which}_empty_key", f"the key of waitpoint {place} must not be empty")
    wanted = keys_of(condition)
    if isinstance(condition, Single) and keys and keys[0] != condition.waitpoint_key:
        why = f"the condition is on {condition.waitpoint_key!r}, the waitpoint is {keys[0]!r}"
        raise _refused("waitpoint_key_mismatch", why)
    if len(keys) == 1 and isinstance(condition, OperatorOnly | TimeoutOnly):
        return  # no signal counts; the waitpoint is there for the sake of its token
    for key in wanted:
        if key not in keys:
            raise _refused("referenced_waitpoint_key_missing_binding", f"no waitpoint has {key!r}")
    for key in keys:
        if key not in wanted:
            why = f"no signal on {key!r} counts"
            raise _refused("extra_binding_not_referenced_by_condition", why)


def _check_node(condition: object, *, depth: int, timeout: bool) -> None:
    match condition:
        case Single():
            check_is_text(condition.waitpoint_key, field="waitpoint_key")
            _check_name(condition.name)
        case OperatorOnly():
            pass
        case TimeoutOnly():
            if not timeout:
                raise _refused("timeout_only_without_deadline", "a timeout must be given")
        case AllConditions():
            _check_depth(depth + 1)
            members = _members(condition.members)
            if not members:
                raise _refused("allof_empty_members", "at least one member must be given")
            for member in members:
                _check_node(member, depth=depth + 1, timeout=timeout)
        case CountOf():
            _check_depth(depth + 1)
            _check_count(condition)
        case AnyCondition():
            raise _refused("anyof_not_at_root", "it must not be a member of another condition")
        case _:
            raise _refused("unknown_condition", f"{condition!r} is no condition")


def _check_count(condition: CountOf) -> None:
    keys = _members(condition.waitpoints)
    for key in keys:
        check_is_text(key, field="waitpoint_key")
    _check_name(condition.name)
    if condition.distinct not in _DISTINCT:
        why = f"must be one of {', '.join(_DISTINCT)}"
        raise invalid_input("distinct", condition.distinct, why)
    if type(condition.n) is not int or condition.n < 0:
        raise invalid_input("n", condition.n, "must be a whole number of at least 1")
    if condition.n == 0:
        raise _refused("count_n_zero", "n must be at least 1")
    if not keys:
        raise _refused("count_waitpoints_empty", "at least one waitpoint must be named")
    if condition.distinct == "waitpoints" and condition.n > len(set(keys)):
        why = f"{condition.n} of {len(set(keys))} waitpoints can never be reached"
        raise _refused("count_exceeds_waitpoint_set", why)


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _refused("depth", f"composites must not be nested more than {MAX_DEPTH} deep")


def _check_name(name: str | None) -> None:
    if name is None:
        return
    if not check_is_text(name, field="signal_name"):
        raise _refused("empty_signal_name", "leave the name out to mean any signal")
    check_text(name, field="signal_name", at_most=MAX_NAME)


def _members(given: object) -> tuple[Any, ...]:
    if not isinstance(given, list | tuple):
        raise invalid_input("condition", given, "must have a tuple of members")
    return tuple(cast("Sequence[Any]", given))


def _refused(code: str, why: str) -> ValidationError:
    return ValidationError("invalid_input", f"{code}: {why}", field="condition")
