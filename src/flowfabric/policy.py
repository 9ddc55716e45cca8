"""The execution policy, fixed when an execution is created: retries, timeouts and limits.

Durations are given as seconds or a `timedelta`, and stored in fields as seconds. Making an invalid
policy raises `ValidationError(invalid_policy_json)`, which names the field and its value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, cast

import msgspec

from flowfabric.errors import ValidationError, invalid_input
from flowfabric.ids import check_list
from flowfabric.instants import check_instant, epoch_ms, instant
from flowfabric.stored_policy import (
    DAY_MS,
    DEFAULT_RECLAIMS,
    MAX_COUNT,
    MAX_MS,
    StoredExponentialBackoff,
    StoredFixedBackoff,
    StoredPolicy,
    StoredRetryPolicy,
    StoredTimeoutPolicy,
)

MAX_CAPABILITIES: Final = 256
MAX_CAPABILITY_BYTES: Final = 4096
MAX_PRIORITY: Final = 9000
MAX_BUDGETS: Final = 32
MAX_GRACE_MS: Final = 2**53 - 1
DEFAULT_RETENTION: Final = timedelta(hours=24)
"""How long a finished execution is kept on a lane that has no retention of its own."""


def milliseconds(duration: float | timedelta, *, field: str = "duration") -> int:
    """A duration, given in seconds or as a timedelta, as whole milliseconds.

    Raises `ValidationError(invalid_input)` unless it is a duration of at most a century.
    """
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not _is_number(seconds):
        raise invalid_input(field, duration, "must be a number of seconds or a timedelta")
    if not -MAX_MS <= seconds * 1000 <= MAX_MS:
        raise invalid_input(field, duration, "must be a number of seconds within a century")
    return round(seconds * 1000)


def timeout_seconds(timeout: float | timedelta | None) -> float | None:
    """How long a call waits, in seconds; None: for ever. Raises `ValidationError(invalid_input)`.

    A timeout of 0 or less means that the call does not wait.
    """
    return None if timeout is None else milliseconds(timeout, field="timeout") / 1000


def grace_milliseconds(grace: float | timedelta) -> int:
    """A grace period as whole milliseconds; raises `ValidationError(invalid_grace_ms)`."""
    if isinstance(grace, timedelta):
        whole = round(grace / timedelta(milliseconds=1))
    else:
        whole = round(grace * 1000) if _is_number(grace) and math.isfinite(grace) else -1
    if not 0 <= whole <= MAX_GRACE_MS:
        why = f"grace {grace!r} must be a duration of 0 to 2^53-1 milliseconds"
        raise ValidationError("invalid_grace_ms", why)
    return whole


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _keep_seconds(policy: msgspec.Struct, *fields: str) -> None:
    """Replace each duration by its seconds; raises if one is negative or not a duration."""
    for field in fields:
        given: float | timedelta | None = getattr(policy, field)
        if given is None:
            continue
        try:
            kept = milliseconds(given, field=field)
        except ValidationError as error:
            raise ValidationError("invalid_policy_json", error.detail) from None
        if kept < 0:
            raise _fault(field, given, "must not be negative")
        msgspec.structs.force_setattr(policy, field, kept / 1000)


def _check_count(field: str, value: object) -> None:
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise _fault(field, value, f"must be a whole number from 0 to {MAX_COUNT}")


def _check_multiplier(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 1000:
        raise _fault(field, value, "must be a number from 1 to 1000")


def _check_flag(field: str, value: object) -> None:
    if type(value) is not bool:
        raise _fault(field, value, "must be True or False")


def _check_type(field: str, value: object, *kinds: type) -> None:
    if not isinstance(value, kinds) or (int in kinds and isinstance(value, bool)):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise _fault(field, value, f"must be of type {names}")


def _texts(field: str, given: object) -> tuple[object, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise _fault(field, given, "must be a list of strings")
    texts = tuple(cast("Iterable[object]", given))
    for text in texts:
        _check_type(field, text, str)
    return texts


def _fault(field: str, value: object, why: str) -> ValidationError:
    return ValidationError("invalid_policy_json", f"{field} {value!r} {why}")


class FixedBackoff(msgspec.Struct, frozen=True, kw_only=True):
    """The same delay before every retry."""

    delay: float | timedelta = 1.0

    def __post_init__(self) -> None:
        _keep_seconds(self, "delay")

    def stored(self) -> StoredFixedBackoff:
        return StoredFixedBackoff(delay_ms=milliseconds(self.delay))


class ExponentialBackoff(msgspec.Struct, frozen=True, kw_only=True):
    """Delays that grow by the factor `multiplier`, up to `max_delay`."""

    initial_delay: float | timedelta = 1.0
    max_delay: float | timedelta = 60.0
    multiplier: float = 2.0
    jitter: bool = False

    def __post_init__(self) -> None:
        _keep_seconds(self, "initial_delay", "max_delay")
        _check_multiplier("multiplier", self.multiplier)
        _check_flag("jitter", self.jitter)

    def stored(self) -> StoredExponentialBackoff:
        return StoredExponentialBackoff(
            initial_delay_ms=milliseconds(self.initial_delay),
            max_delay_ms=milliseconds(self.max_delay),
            multiplier=self.multiplier,
            jitter=self.jitter,
        )


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often and after which delay a failed attempt is retried."""

    max_retries: int = 3
    backoff: FixedBackoff | ExponentialBackoff = ExponentialBackoff()
    retryable_categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_count("max_retries", self.max_retries)
        _check_type("backoff", self.backoff, FixedBackoff, ExponentialBackoff)
        _texts("retryable_categories", self.retryable_categories)

    def stored(self) -> StoredRetryPolicy:
        return StoredRetryPolicy(
            max_retries=self.max_retries,
            backoff=self.backoff.stored(),
            retryable_categories=self.retryable_categories,
        )


class TimeoutPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long one attempt, and the whole execution, may take."""

    attempt_timeout: float | timedelta | None = None
    execution_deadline: float | timedelta | None = None
    max_reclaim_count: int | None = None

    def __post_init__(self) -> None:
        _keep_seconds(self, "attempt_timeout", "execution_deadline")
        if self.max_reclaim_count is not None:
            _check_count("max_reclaim_count", self.max_reclaim_count)

    def stored(self) -> StoredTimeoutPolicy:
        attempt, execution = self.attempt_timeout, self.execution_deadline
        return StoredTimeoutPolicy(
            attempt_timeout_ms=None if attempt is None else milliseconds(attempt),
            execution_deadline_ms=None if execution is None else milliseconds(execution),
            max_reclaim_count=self.max_reclaim_count,
        )


class ExecutionPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Retries, timeouts and limits of one execution, fixed when it is created."""

    priority: int = 0
    delay_until: datetime | None = None
    retry_policy: RetryPolicy | None = None
    timeout_policy: TimeoutPolicy | None = None
    max_reclaim_count: int = DEFAULT_RECLAIMS
    max_replay_count: int = 10
    suspension_policy: dict[str, Any] | None = None
    fallback_policy: dict[str, Any] | None = None
    budget_ids: tuple[str, ...] = ()
    routing_requirements: dict[str, Any] | None = None
    dedup_window: float | timedelta = DAY_MS / 1000
    stream_policy: dict[str, Any] | None = None
    max_signals_per_execution: int = 10_000

    def __post_init__(self) -> None:
        _check_type("priority", self.priority, int)
        for field in ("max_reclaim_count", "max_replay_count", "max_signals_per_execution"):
            _check_count(field, getattr(self, field))
        _keep_seconds(self, "dedup_window")
        if self.delay_until is not None:
            _check_type("delay_until", self.delay_until, datetime)
            check_instant(self.delay_until, field="delay_until")
        if self.budget_ids:
            names = _texts("budget_ids", self.budget_ids)
            sizes = {len(str(name).encode("utf-8", "surrogatepass")) for name in names}
            if len(names) > MAX_BUDGETS or not 1 <= min(sizes) <= max(sizes) <= 256:
                raise _fault(
                    "budget_ids", names, f"must be {MAX_BUDGETS} of 1 to 256 bytes at most"
                )
        if self.retry_policy is not None:
            _check_type("retry_policy", self.retry_policy, RetryPolicy)
        if self.timeout_policy is not None:
            _check_type("timeout_policy", self.timeout_policy, TimeoutPolicy)
        if self.routing_requirements is not None:
            _check_type("routing_requirements", self.routing_requirements, dict)
            named = self.routing_requirements.get("required_capabilities")
            check_capabilities(() if named is None else named, side="required")
        self.as_json()

    @classmethod
    def parse(cls, stored: object) -> ExecutionPolicy:
        """Read a policy given as JSON data; raises `ValidationError(invalid_policy_json)`."""
        if isinstance(stored, ExecutionPolicy):
            return stored
        read = StoredPolicy.parse(stored)
        retry, timeout = read.retry_policy, read.timeout_policy
        unconverted = {
            name: value
            for name, value in msgspec.structs.asdict(read).items()
            if name not in ("delay_until", "retry_policy", "timeout_policy", "dedup_window_ms")
        }
        return cls(
            **unconverted,
            delay_until=instant(read.delay_until),
            retry_policy=None if retry is None else _read_retry(retry),
            timeout_policy=None if timeout is None else _read_timeout(timeout),
            dedup_window=read.dedup_window_ms / 1000,
        )

    @property
    def required_capabilities(self) -> tuple[str, ...]:
        """The capabilities that `routing_requirements` demands of a worker."""
        return tuple((self.routing_requirements or {}).get("required_capabilities") or ())

    def as_json(self) -> bytes:
        """The policy as the JSON text that is stored."""
        retry, timeout = self.retry_policy, self.timeout_policy
        return StoredPolicy(
            priority=self.priority,
            delay_until=None if self.delay_until is None else epoch_ms(self.delay_until),
            retry_policy=None if retry is None else retry.stored(),
            timeout_policy=None if timeout is None else timeout.stored(),
            max_reclaim_count=self.max_reclaim_count,
            max_replay_count=self.max_replay_count,
            suspension_policy=self.suspension_policy,
            fallback_policy=self.fallback_policy,
            budget_ids=self.budget_ids,
            routing_requirements=self.routing_requirements,
            dedup_window_ms=milliseconds(self.dedup_window),
            stream_policy=self.stream_policy,
            max_signals_per_execution=self.max_signals_per_execution,
        ).as_json()


def _read_retry(stored: StoredRetryPolicy) -> RetryPolicy:
    match stored.backoff:
        case StoredFixedBackoff(delay_ms=delay):
            backoff = FixedBackoff(delay=delay / 1000)
        case StoredExponentialBackoff() as growing:
            backoff = ExponentialBackoff(
                initial_delay=growing.initial_delay_ms / 1000,
                max_delay=growing.max_delay_ms / 1000,
                multiplier=growing.multiplier,
                jitter=growing.jitter,
            )
    return RetryPolicy(
        max_retries=stored.max_retries,
        backoff=backoff,
        retryable_categories=stored.retryable_categories,
    )


def _read_timeout(stored: StoredTimeoutPolicy) -> TimeoutPolicy:
    attempt, execution = stored.attempt_timeout_ms, stored.execution_deadline_ms
    return TimeoutPolicy(
        attempt_timeout=None if attempt is None else attempt / 1000,
        execution_deadline=None if execution is None else execution / 1000,
        max_reclaim_count=stored.max_reclaim_count,
    )


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """The retry policy of a task: `@app.task("fetch", retry=Retry(max_retries=5))`.

    A handler that asks for a retry itself raises `RetryLater`.
    """

    max_retries: int = 3
    initial: float | timedelta = 1.0
    factor: float = 2.0
    max: float | timedelta = 60.0
    jitter: bool = False
    categories: Iterable[str] = ()

    def __post_init__(self) -> None:
        _check_count("max_retries", self.max_retries)
        _keep_seconds(self, "initial", "max")
        _check_multiplier("factor", self.factor)
        _check_flag("jitter", self.jitter)
        categories = _texts("categories", self.categories)
        msgspec.structs.force_setattr(self, "categories", categories)

    @property
    def policy(self) -> RetryPolicy:
        """The policy that each execution of the task gets."""
        return RetryPolicy(
            max_retries=self.max_retries,
            backoff=ExponentialBackoff(
                initial_delay=self.initial,
                max_delay=self.max,
                multiplier=self.factor,
                jitter=self.jitter,
            ),
            retryable_categories=tuple(self.categories),
        )


def clamp_priority(priority: int) -> int:
    """The priority, clamped to 0 … 9000; raises `ValidationError(invalid_input)` for no int."""
    if type(priority) is not int:
        raise invalid_input("priority", priority, "must be a whole number")
    return max(0, min(MAX_PRIORITY, priority))


CapabilitySide = Literal["required", "worker"]


def capabilities_of(given: object, *, field: str, side: CapabilitySide) -> list[str]:
    """The tokens of a setting, as `check_capabilities`; the error names the setting and its value.

    Raises `ValidationError` (`invalid_input`, `invalid_capabilities`).
    """
    tokens = check_list(given, field=field)
    try:
        return check_capabilities(tokens, side=side)
    except ValidationError as error:
        raise ValidationError(error.code, f"{field} {given!r:.200} {error.detail}") from None


def check_capabilities(given: object, *, side: CapabilitySide) -> list[str]:
    """The tokens, sorted and distinct; raises `ValidationError(invalid_capabilities)`."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise _capability_fault(side, "not_array")
    tokens: set[str] = set()
    for token in cast("Iterable[object]", given):
        if not isinstance(token, str):
            raise _capability_fault(side, "non_string_token")
        if not token:
            raise _capability_fault(side, "empty_token")
        if "," in token:
            raise _capability_fault(side, "comma_in_token")
        if any(
            letter <= " " or letter == "\x7f" or "\ud800" <= letter <= "\udfff" for letter in token
        ):
            raise _capability_fault(side, "control_or_whitespace")
        tokens.add(token)
    if len(tokens) > MAX_CAPABILITIES:
        raise _capability_fault(side, "too_many_tokens")
    if len(",".join(tokens).encode()) > MAX_CAPABILITY_BYTES:
        raise _capability_fault(side, "too_many_bytes")
    return sorted(tokens)


def _capability_fault(side: CapabilitySide, why: str) -> ValidationError:
    return ValidationError("invalid_capabilities", f"{side}:{why}")
