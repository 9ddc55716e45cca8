"""The execution policy as it is stored: JSON under the names of the spec, in milliseconds.

Plain SQL writes the same JSON to `ff.submit`, where `ff.policy_fault` checks it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric.errors import ValidationError
from flowfabric.instants import LAST_MS
from flowfabric.json_values import TOO_DEEP, check_finite

DAY_MS: Final = 24 * 60 * 60 * 1000
MAX_MS: Final = 100 * 365 * DAY_MS
MAX_COUNT: Final = 2**31 - 1
DEFAULT_RECLAIMS: Final = 5
"""How many lost leases an execution survives whose policy does not say, as in ff.reclaim_cap."""


class StoredFixedBackoff(msgspec.Struct, frozen=True, kw_only=True, tag="fixed", tag_field="type"):
    """`{"type": "fixed", …}`"""

    delay_ms: int = 1000


class StoredExponentialBackoff(
    msgspec.Struct, frozen=True, kw_only=True, tag="exponential", tag_field="type"
):
    """`{"type": "exponential", …}`"""

    initial_delay_ms: int = 1000
    max_delay_ms: int = 60_000
    multiplier: float = 2.0
    jitter: bool = False


class StoredRetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The object `retry_policy`; every field is written."""

    max_retries: int = 3
    backoff: StoredFixedBackoff | StoredExponentialBackoff = StoredExponentialBackoff()
    retryable_categories: tuple[str, ...] = ()


class StoredTimeoutPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object `timeout_policy`; fields that are None are not written."""

    attempt_timeout_ms: int | None = None
    execution_deadline_ms: int | None = None
    max_reclaim_count: int | None = None


class StoredPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The whole policy; fields that have their default are not written."""

    priority: int = 0
    delay_until: int | None = None
    retry_policy: StoredRetryPolicy | None = None
    timeout_policy: StoredTimeoutPolicy | None = None
    max_reclaim_count: int = DEFAULT_RECLAIMS
    max_replay_count: int = 10
    suspension_policy: dict[str, Any] | None = None
    fallback_policy: dict[str, Any] | None = None
    budget_ids: tuple[str, ...] = ()
    routing_requirements: dict[str, Any] | None = None
    dedup_window_ms: int = DAY_MS
    stream_policy: dict[str, Any] | None = None
    max_signals_per_execution: int = 10_000

    @classmethod
    def parse(cls, stored: object) -> StoredPolicy:
        """Read JSON data; raises `ValidationError(invalid_policy_json)` naming the field."""
        try:
            policy = msgspec.convert(stored, cls)
        except msgspec.ValidationError as error:
            raise ValidationError("invalid_policy_json", str(error)) from None
        for field, value in policy._numbers().items():
            if field == "delay_until":
                at_most = LAST_MS
            else:
                at_most = MAX_MS if field.endswith("_ms") else MAX_COUNT
            if value is not None and not 0 <= value <= at_most:
                raise _fault(field, value)
        return policy

    def as_json(self) -> bytes:
        """The JSON text to store; raises `ValidationError(invalid_policy_json)`."""
        written = {
            name: value
            for name, value in msgspec.structs.asdict(self).items()
            if value != _DEFAULTS[name]
        }
        try:
            text = msgspec.json.encode(written)
            check_finite(msgspec.to_builtins(written))
        except RecursionError:
            raise ValidationError("invalid_policy_json", f"cannot be stored: {TOO_DEEP}") from None
        except (TypeError, ValueError) as error:
            raise ValidationError("invalid_policy_json", f"cannot be stored: {error}") from None
        if b"\\u0000" in text:
            raise ValidationError(
                "invalid_policy_json", "its texts must not contain a NUL character"
            )
        return text

    def _numbers(self) -> dict[str, int | None]:
        """Every number that has a range, by its path."""
        retry, timeout = self.retry_policy, self.timeout_policy
        numbers: dict[str, int | None] = {
            "delay_until": self.delay_until,
            "max_reclaim_count": self.max_reclaim_count,
            "max_replay_count": self.max_replay_count,
            "max_signals_per_execution": self.max_signals_per_execution,
            "dedup_window_ms": self.dedup_window_ms,
        }
        if retry is not None:
            numbers["retry_policy.max_retries"] = retry.max_retries
            match retry.backoff:
                case StoredFixedBackoff(delay_ms=delay):
                    numbers["retry_policy.backoff.delay_ms"] = delay
                case StoredExponentialBackoff() as growing:
                    numbers["retry_policy.backoff.initial_delay_ms"] = growing.initial_delay_ms
                    numbers["retry_policy.backoff.max_delay_ms"] = growing.max_delay_ms
                    if not 1 <= growing.multiplier <= 1000:
                        raise _fault("retry_policy.backoff.multiplier", growing.multiplier)
        if timeout is not None:
            numbers["timeout_policy.attempt_timeout_ms"] = timeout.attempt_timeout_ms
            numbers["timeout_policy.execution_deadline_ms"] = timeout.execution_deadline_ms
            numbers["timeout_policy.max_reclaim_count"] = timeout.max_reclaim_count
        return numbers


_DEFAULTS: Final = msgspec.structs.asdict(StoredPolicy())


def _fault(field: str, value: object) -> ValidationError:
    return ValidationError("invalid_policy_json", f"{field} {value!r} is out of range")
