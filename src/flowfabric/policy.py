"""The execution policy: frozen at create, stored as JSON under the names of the spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, cast

import msgspec

from flowfabric.errors import FlowFabricError, ValidationError, invalid_input

MAX_CAPABILITIES: Final = 256
MAX_CAPABILITY_BYTES: Final = 4096
MAX_PRIORITY: Final = 9000
DAY_MS: Final = 24 * 60 * 60 * 1000
DEFAULT_RETENTION: Final = timedelta(hours=24)
"""How long a finished execution is kept on a lane that does not say otherwise."""
_MAX_MS: Final = 100 * 365 * DAY_MS
_MAX_COUNT: Final = 2**31 - 1


class FixedBackoff(msgspec.Struct, frozen=True, kw_only=True, tag="fixed", tag_field="type"):
    """The same wait before every retry."""

    delay_ms: int = 1000


class ExponentialBackoff(
    msgspec.Struct, frozen=True, kw_only=True, tag="exponential", tag_field="type"
):
    """Waits that grow by `multiplier` up to `max_delay_ms`."""

    initial_delay_ms: int = 1000
    max_delay_ms: int = 60_000
    multiplier: float = 2.0
    jitter: bool = False


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """How often and when a failed attempt is followed by another."""

    max_retries: int = 3
    backoff: FixedBackoff | ExponentialBackoff = ExponentialBackoff()
    retryable_categories: tuple[str, ...] = ()


class TimeoutPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long one attempt, and the whole execution, may take."""

    attempt_timeout_ms: int | None = None
    execution_deadline_ms: int | None = None
    max_reclaim_count: int | None = None


class ExecutionPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is decided at create about retries, timeouts and limits."""

    priority: int = 0
    delay_until: int | None = None
    retry_policy: RetryPolicy | None = None
    timeout_policy: TimeoutPolicy | None = None
    max_reclaim_count: int = 100
    max_replay_count: int = 10
    suspension_policy: dict[str, Any] | None = None
    fallback_policy: dict[str, Any] | None = None
    budget_ids: tuple[str, ...] = ()
    routing_requirements: dict[str, Any] | None = None
    dedup_window_ms: int = DAY_MS
    stream_policy: dict[str, Any] | None = None
    max_signals_per_execution: int = 10_000

    @classmethod
    def parse(cls, stored: object) -> ExecutionPolicy:
        """Read a policy given as JSON data; raises `ValidationError(invalid_policy_json)`."""
        try:
            return msgspec.convert(stored, cls)
        except msgspec.ValidationError as error:
            raise ValidationError("invalid_policy_json", str(error)) from None

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be honoured."""
        retry, timeout = self.retry_policy, self.timeout_policy
        numbers: dict[str, int | None] = {
            "max_reclaim_count": self.max_reclaim_count,
            "max_replay_count": self.max_replay_count,
            "dedup_window_ms": self.dedup_window_ms,
        }
        if retry is not None:
            numbers["retry_policy.max_retries"] = retry.max_retries
            match retry.backoff:
                case FixedBackoff(delay_ms=delay):
                    numbers["retry_policy.backoff.delay_ms"] = delay
                case ExponentialBackoff() as growing:
                    numbers["retry_policy.backoff.initial_delay_ms"] = growing.initial_delay_ms
                    numbers["retry_policy.backoff.max_delay_ms"] = growing.max_delay_ms
                    if not 1 <= growing.multiplier <= 1000:
                        raise _fault("retry_policy.backoff.multiplier", growing.multiplier)
        if timeout is not None:
            numbers["timeout_policy.attempt_timeout_ms"] = timeout.attempt_timeout_ms
            numbers["timeout_policy.execution_deadline_ms"] = timeout.execution_deadline_ms
            numbers["timeout_policy.max_reclaim_count"] = timeout.max_reclaim_count
        for field, value in numbers.items():
            at_most = _MAX_MS if field.endswith("_ms") else _MAX_COUNT
            if value is not None and not 0 <= value <= at_most:
                raise _fault(field, value)
        if self.routing_requirements is not None:
            named = self.routing_requirements.get("required_capabilities")
            check_capabilities(() if named is None else named, side="required")
        try:
            text = self.as_json()
        except (TypeError, ValueError) as error:
            raise ValidationError("invalid_policy_json", f"cannot be stored: {error}") from None
        if b"\\u0000" in text:
            raise ValidationError("invalid_policy_json", "its texts must not hold a NUL character")

    @property
    def required_capabilities(self) -> tuple[str, ...]:
        """What its routing requires of workers."""
        return tuple((self.routing_requirements or {}).get("required_capabilities") or ())

    def as_json(self) -> bytes:
        return msgspec.json.encode(self)


def _fault(field: str, value: object) -> ValidationError:
    return ValidationError("invalid_policy_json", f"{field} {value!r} is out of range")


class Retry(FlowFabricError):
    """How a task is tried again.

    As `retry=Retry(max_retries=5)` it is the policy of a task. Raised by a handler, it ends the
    attempt and asks for another one: `raise Retry(after=30)` waits 30 seconds, a bare
    `raise Retry()` waits as the task's policy says. Either way the
    attempt counts against the task's `max_retries`.
    """

    kind = "handler"
    code = "retry"

    def __init__(
        self,
        reason: str = "the handler asked to be tried again",
        *,
        after: float | timedelta | None = None,
        max_retries: int = 3,
        initial: float = 1.0,
        factor: float = 2.0,
        max: float = 60.0,  # noqa: A002  the natural word, keyword only
        jitter: bool = False,
        categories: Iterable[str] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_ms = None if after is None else milliseconds(after)
        self.policy = RetryPolicy(
            max_retries=max_retries,
            backoff=ExponentialBackoff(
                initial_delay_ms=milliseconds(initial),
                max_delay_ms=milliseconds(max),
                multiplier=factor,
                jitter=jitter,
            ),
            retryable_categories=tuple(categories),
        )


def milliseconds(duration: float | timedelta, *, field: str = "duration") -> int:
    """A duration, given in seconds or as a timedelta, as whole milliseconds; at most a century."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not -_MAX_MS <= seconds * 1000 <= _MAX_MS:
        raise invalid_input(field, seconds, "must be a number of seconds within a century")
    return round(seconds * 1000)


def clamp_priority(priority: int) -> int:
    return max(0, min(MAX_PRIORITY, priority))


CapabilitySide = Literal["required", "worker"]


def check_capabilities(given: object, *, side: CapabilitySide) -> list[str]:
    """The capability tokens, sorted and without repeats; raises `invalid_capabilities`."""
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
