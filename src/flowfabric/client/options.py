"""The options of a submit, and those of each call of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from flowfabric.app.check_call import check_call
from flowfabric.app.task import Call
from flowfabric.budgets import GivenBudgets
from flowfabric.engine.lifecycle.create_execution import OnConflict
from flowfabric.errors import invalid_input
from flowfabric.limits import Debounce, Merged, Unique, merge_key, merge_name
from flowfabric.states import PublicState


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a submit; None means the setting of the task."""

    idempotency_key: str | None = None
    idempotency_window: float | timedelta | None = None
    on_conflict: OnConflict = "error"
    priority: int | None = None
    delay: float | timedelta | None = None
    delay_until: datetime | None = None
    deadline: float | timedelta | None = None
    deadline_at: datetime | None = None
    tags: Mapping[str, str] = {}
    lane: str | None = None
    budget: GivenBudgets | None = None
    limit_key: str | None = None
    unique: Unique | None = None
    debounce: Debounce | None = None

    def __post_init__(self) -> None:
        if self.unique is None and self.debounce is None:
            return
        for name, wanted in (("unique", Unique), ("debounce", Debounce)):
            given = getattr(self, name)
            if given is None:
                continue
            if not isinstance(given, wanted):
                raise invalid_input(name, given, f"must be a {wanted.__name__}")
            if callable(given.key):
                why = "must have a text as its key: a function is for @app.task"
                raise invalid_input(name, None, why)
        if self.idempotency_key is not None or self.idempotency_window is not None:
            raise invalid_input("idempotency_key", None, "cannot be given with unique or debounce")
        if self.unique is not None and self.debounce is not None:
            raise invalid_input("debounce", None, "cannot be given with unique")
        if self.debounce is not None and (self.delay, self.delay_until) != (None, None):
            raise invalid_input("delay", None, "cannot be given with debounce")

    @property
    def merged(self) -> Merged | None:
        """How submits of one key become one execution."""
        return self.unique or self.debounce

    @property
    def is_alone(self) -> bool:
        """Does the submit change an execution that exists? Then it is a transaction of its own."""
        return self.debounce is not None or self.supersedes

    @property
    def supersedes(self) -> bool:
        """Does the submit cancel an older execution of its key?"""
        return self.unique is not None and self.unique.on_conflict == "cancel_old"

    @property
    def has_key(self) -> bool:
        """May the submit find an execution that exists?"""
        return self.idempotency_key is not None or self.merged is not None

    def key_for(self, kind: str) -> str | None:
        """The idempotency key, or that of `unique` or `debounce`."""
        return self.idempotency_key if self.merged is None else merge_key(self.merged, kind)


_FIELDS: Final = Options.__struct_fields__
PLAIN: Final = Options()
_NOTHING: Final = tuple(None if name == "tags" else getattr(PLAIN, name) for name in _FIELDS)


def options_in_order(*given: Any) -> Options:
    """The options of a submit in the order of their fields; most submits have none."""
    if given == _NOTHING:
        return PLAIN
    options: dict[str, Any] = dict(zip(_FIELDS, given, strict=True))
    options["tags"] = options["tags"] or {}
    return Options(**options)


def of_call(options: Options, call: Call[Any]) -> Options:
    """The options, with what the task of the call says of `unique` and `debounce`.

    What the submit says replaces it. Raises `ValidationError` if both do not go together.
    """
    check_call(call)
    if call.merged is None or options.merged is not None:
        return options
    return msgspec.structs.replace(options, **{merge_name(call.merged): call.merged})


def options_of(given: Mapping[str, Any]) -> Options:
    """The options of a submit by their names; raises `ValidationError` for one that is unknown."""
    for name in given:
        if name not in Options.__struct_fields__:
            known = ", ".join(Options.__struct_fields__)
            raise invalid_input("option", name, f"is unknown; the options are {known}")
    return Options(**given)


def each_option(
    calls: Sequence[Call[Any]], options: Options, keys: Sequence[str | None] | None
) -> Sequence[Options]:
    """The options of each call, with its key if there are keys; raises `ValidationError`."""
    if options.merged is not None:
        name = merge_name(options.merged)
        raise invalid_input(name, None, "is for submit: give each call its own key")
    given = [options] * len(calls) if keys is None else _with_keys(calls, options, keys)
    if all(getattr(call, "merged", None) is None for call in calls):
        return given
    if len(calls) > 1 and any(isinstance(call.merged, Debounce) for call in calls):
        raise invalid_input("debounce", None, "does not go with many calls: submit each alone")
    return [of_call(each, call) for each, call in zip(given, calls, strict=True)]


def _with_keys(
    calls: Sequence[Call[Any]], options: Options, keys: Sequence[str | None]
) -> list[Options]:
    if len(keys) != len(calls) or isinstance(keys, str):
        raise invalid_input("idempotency_keys", keys, f"must be one key for each of {len(calls)}")
    if options.idempotency_key is not None:
        raise invalid_input("idempotency_keys", None, "cannot be given with an idempotency_key")
    unkeyed = msgspec.structs.replace(options, idempotency_window=None)
    return [
        unkeyed if key is None else msgspec.structs.replace(options, idempotency_key=key)
        for key in keys
    ]


def public_state(state: str) -> PublicState:
    """The state of this name; raises `ValidationError(invalid_input)`."""
    try:
        return PublicState(state)
    except ValueError:
        raise invalid_input("state", state, f"is not one of {', '.join(PublicState)}") from None
