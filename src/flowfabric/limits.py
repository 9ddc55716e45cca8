"""Limits: how many executions of a key run at once, and how many of them start in a window."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID, uuid5

import msgspec

from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import check_is_text, check_name, check_text, crc16
from flowfabric.policy import milliseconds

MAX_LIMIT: Final = 1_000_000_000
_NAMES: Final = UUID("5d0c6a3e-1f0b-5b0e-9a58-6f1d8a3c2b47")
_KEY_BYTES: Final = 1024
_MERGED_KEY_BYTES: Final = 512
"""An idempotency key has the name of the task too."""


class Rate(msgspec.Struct, frozen=True):
    """At most `count` starts in any window of `per` seconds: `Rate(10, per=60)`.

    Raises `ValidationError` (`invalid_quota_spec`) for a count that is not a whole number from 1,
    and for a window that is missing or not positive.
    """

    count: int
    per: float | timedelta | None = None

    def __post_init__(self) -> None:
        if check_count(self.count, field="rate") == 0:
            raise invalid_quota_spec("rate", self.count, "must be at least 1")
        if self.per is None:
            raise invalid_quota_spec("rate", self.count, "needs a window: Rate(10, per=60)")
        if milliseconds(self.per, field="per") < 1:
            raise invalid_quota_spec("per", self.per, "must be positive")

    @property
    def window_ms(self) -> int:
        assert self.per is not None
        return milliseconds(self.per, field="per")

    @property
    def window(self) -> timedelta:
        return timedelta(milliseconds=self.window_ms)


class QuotaLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a limit allows for each of its keys; 0 means that there is no such limit.

    Raises `ValidationError` (`invalid_quota_spec`) for numbers that are negative or not whole, and
    for a rate without a window.
    """

    window_seconds: float | timedelta = 0
    """The length of the window in which starts are counted."""
    max_requests_per_window: int = 0
    """How many executions of a key may start in any window."""
    max_concurrent: int = 0
    """How many executions of a key may run at once."""
    jitter: float | timedelta = 0
    """Up to so many seconds are added to the `retry_after` of `check_admission`."""

    def __post_init__(self) -> None:
        check_count(self.max_requests_per_window, field="max_requests_per_window")
        check_count(self.max_concurrent, field="max_concurrent")
        for field in ("window_seconds", "jitter"):
            if milliseconds(getattr(self, field), field=field) < 0:
                raise invalid_quota_spec(field, getattr(self, field), "must not be negative")
        if self.max_requests_per_window and self.window_ms < 1:
            rate = self.max_requests_per_window
            raise invalid_quota_spec("max_requests_per_window", rate, "needs a window")

    @property
    def window_ms(self) -> int:
        return milliseconds(self.window_seconds, field="window_seconds")

    @property
    def jitter_ms(self) -> int:
        return milliseconds(self.jitter, field="jitter")


class Unique(msgspec.Struct, frozen=True):
    """One execution of the key at a time: `Unique("report-7", until="ended")`.

    The key is taken until the execution has `started` or `ended`. A submit meanwhile returns that
    execution, or with `on_conflict="cancel_old"` cancels it and creates a new one. Each task has
    its own keys. For `@app.task` the key may be a function of the arguments of a call. Raises
    `ValidationError`.
    """

    key: str | Callable[..., str]
    until: Literal["started", "ended"] = "ended"
    on_conflict: Literal["return", "cancel_old"] = "return"

    def __post_init__(self) -> None:
        _check_key(self.key, field="unique key")
        if self.until not in ("started", "ended"):
            raise invalid_input("until", self.until, "must be 'started' or 'ended'")
        if self.on_conflict not in ("return", "cancel_old"):
            raise invalid_input("on_conflict", self.on_conflict, "must be 'return' or 'cancel_old'")


class Debounce(msgspec.Struct, frozen=True):
    """Submits of the key that follow soon become one execution: `Debounce("doc-7", wait=5)`.

    It starts `wait` seconds after the last of them, at most `max_wait` (ten times `wait`) after the
    first, with the payload of the `first` or `last` one. Each task has its own keys. For
    `@app.task` the key may be a function of the arguments of a call. Raises `ValidationError`.
    """

    key: str | Callable[..., str]
    wait: float | timedelta = 5.0
    max_wait: float | timedelta | None = None
    payload: Literal["first", "last"] = "last"

    def __post_init__(self) -> None:
        _check_key(self.key, field="debounce key")
        wait_ms = milliseconds(self.wait, field="wait")
        if wait_ms < 1:
            raise invalid_input("wait", self.wait, "must be positive")
        if self.max_wait is not None and milliseconds(self.max_wait, field="max_wait") < wait_ms:
            raise invalid_input("max_wait", self.max_wait, "must be at least wait")
        if self.payload not in ("first", "last"):
            raise invalid_input("payload", self.payload, "must be 'first' or 'last'")


Merged: TypeAlias = Unique | Debounce
"""How submits of one key become one execution."""


def merge_name(merged: Merged) -> Literal["unique", "debounce"]:
    """The name of the option: `unique` or `debounce`."""
    return "unique" if isinstance(merged, Unique) else "debounce"


def merge_key(merged: Merged, kind: str) -> str:
    """The idempotency key under which submits of the task `kind` become one execution."""
    return f"{merge_name(merged)}:{kind}:{merged.key}"


def with_key_of(merged: Merged, kind: str, arguments: Sequence[Any]) -> Merged:
    """The same with the key of a call with these arguments; raises `ValidationError`."""
    if not callable(merged.key):
        return merged
    name = merge_name(merged)
    try:
        found = merged.key(*arguments)
    except Exception as error:
        why = f"{name} key of task {kind!r} raised {type(error).__name__}: {error}"
        raise ValidationError("invalid_input", why, field=name) from error
    if not isinstance(found, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        why = f"{name} key {found!r} of task {kind!r} must be text"
        raise ValidationError("invalid_input", why, field=name)
    return msgspec.structs.replace(merged, key=found)


def refuse_merged(merged: Merged | None, kind: str, what: str) -> None:
    """Raise `ValidationError` for a task whose submits are merged, where `what` is no submit."""
    if merged is not None:
        name = merge_name(merged)
        why = f"{name} of task {kind!r} does not go with {what}: submit the call with a client"
        raise ValidationError("invalid_input", why, field=name)


def _check_key(key: object, *, field: str) -> None:
    if not callable(key):
        check_text(check_is_text(key, field=field), field=field, at_most=_MERGED_KEY_BYTES)


def quota_limits(*, concurrency: object = None, rate: object = None) -> QuotaLimits:
    """The limits as an application writes them; raises `ValidationError` unless one is given."""
    if concurrency is None and rate is None:
        raise invalid_quota_spec("limit", None, "needs concurrency= or rate=")
    if rate is not None and not isinstance(rate, Rate):
        raise invalid_quota_spec("rate", rate, "must be a Rate, such as Rate(10, per=60)")
    if concurrency is not None and check_count(concurrency, field="concurrency") == 0:
        raise invalid_quota_spec("concurrency", concurrency, "must be at least 1")
    return QuotaLimits(
        max_concurrent=0 if concurrency is None else check_count(concurrency, field="concurrency"),
        max_requests_per_window=0 if rate is None else rate.count,
        window_seconds=0 if rate is None else rate.window_ms / 1000,
    )


def invalid_quota_spec(field: str, value: object, why: str) -> ValidationError:
    """A `ValidationError` that names the field, the value unless it is None, and the rule."""
    given = "" if value is None else f" {value!r}"
    return ValidationError("invalid_quota_spec", f"{field}{given} {why}", field=field)


def check_count(value: object, *, field: str) -> int:
    """The number, if it is whole, not negative and at most a billion."""
    if type(value) is not int:
        raise invalid_quota_spec(field, value, "must be a whole number")
    if not 0 <= value <= MAX_LIMIT:
        raise invalid_quota_spec(field, value, f"must be between 0 and {MAX_LIMIT}")
    return value


def check_limit_key(value: object) -> str:
    """The key of a limit, if it is text of 1 to 1024 bytes."""
    if not isinstance(value, str):
        raise ValidationError(
            "invalid_input", f"limit_key {value!r} must be text", field="limit_key"
        )
    return check_text(value, field="limit_key", at_most=_KEY_BYTES)


@lru_cache(maxsize=4096)
def quota_policy_id(namespace: str, name: str) -> UUID:
    """The id of the limit that has this name in the namespace."""
    check_name(namespace, field="namespace")
    check_name(name, field="limit")
    return uuid5(_NAMES, f"{namespace}\x1f{name}")


def quota_key_id(policy: UUID, dimension: str) -> int:
    """The id of one key of a limit; `ff.quota_key_id` is the same function in SQL."""
    digest = hashlib.sha256(policy.bytes + dimension.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def quota_policy_partition(policy: UUID, partitions: int = 32) -> int:
    """The partition of a limit in `ff.quota_policy`."""
    return crc16(policy.bytes) % partitions
