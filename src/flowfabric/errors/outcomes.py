"""How an execution ended, for whoever waits for it; and what a handler raises."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from flowfabric.errors.base import FlowFabricError, RetryClass, invalid_input

if TYPE_CHECKING:
    from flowfabric.ids import ExecutionId


class OutcomeError(FlowFabricError):
    """An execution ended without a result; raised by `handle.result()`."""

    kind = "outcome"

    def __init__(self, execution_id: ExecutionId, message: str) -> None:
        super().__init__(f"execution {execution_id} {message}")
        self.execution_id = execution_id


class ExecutionFailed(OutcomeError):
    """It failed and no retry was left."""

    code = "execution_failed"

    def __init__(self, execution_id: ExecutionId, reason: str | None, category: str | None) -> None:
        super().__init__(execution_id, f"failed ({category}): {reason}")
        self.reason, self.category = reason, category


class ExecutionCancelled(OutcomeError):
    """Somebody cancelled it."""

    code = "execution_cancelled"

    def __init__(self, execution_id: ExecutionId, reason: str | None, by: str | None) -> None:
        super().__init__(execution_id, f"was cancelled by {by}: {reason}")
        self.reason, self.cancelled_by = reason, by


class ExecutionExpired(OutcomeError):
    """Its deadline passed, or its last attempt took too long."""

    code = "execution_expired"

    def __init__(self, execution_id: ExecutionId, reason: str | None) -> None:
        super().__init__(execution_id, f"expired: {reason}")
        self.reason = reason


class ExecutionSkipped(OutcomeError):
    """Something it depended on made it impossible."""

    code = "execution_skipped"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(execution_id, "was skipped")


class ChildFailed(OutcomeError):
    """A child of the running execution ended without a result; raised where it is waited for."""

    code = "child_failed"

    def __init__(self, execution_id: ExecutionId, category: str, reason: str | None) -> None:
        super().__init__(execution_id, f"is a child that ended as {category}: {reason}")
        self.category, self.reason = category, reason


class ResultTimeout(FlowFabricError):
    """The execution had not ended within the time the caller waited; it goes on."""

    kind = "timeout"
    code = "result_timeout"
    retry_class = RetryClass.RETRYABLE

    def __init__(self, execution_id: object, seconds: float) -> None:
        super().__init__(f"{execution_id} has not ended within {seconds:g} s")
        self.execution_id, self.seconds = execution_id, seconds


class LeaseLost(FlowFabricError):
    """The lease of the running attempt is gone; whatever the handler does now is not recorded."""

    kind = "lease_lost"
    code = "lease_lost"


class NonDeterministicReplay(FlowFabricError):
    """The handler ran again and asked for something else than at the same place before."""

    kind = "handler"
    code = "non_deterministic_replay"

    def __init__(self, execution_id: ExecutionId, *, before: str, now: str) -> None:
        super().__init__(f"execution {execution_id} asked for {before} before, now for {now}")
        self.execution_id, self.before, self.now = execution_id, before, now


class Fail(FlowFabricError):
    """Raised by a handler: the attempt failed, with a reason and a category of the user's own."""

    kind = "handler"
    code = "fail"

    def __init__(
        self, reason: str, *, category: str = "handler_error", retryable: bool | None = None
    ) -> None:
        super().__init__(reason)
        self.reason, self.category, self.may_retry = reason, category, retryable


class RetryLater(FlowFabricError):
    """Raised by a handler: end this attempt and try again, if the task's policy allows it.

    `raise RetryLater(after=30)` waits 30 seconds, a bare `raise RetryLater()` as the policy says.
    The attempt counts against the policy's `max_retries`. Raises `ValidationError` for an `after`
    that is no duration.
    """

    kind = "handler"
    code = "retry"

    def __init__(
        self,
        reason: str = "the handler asked to be tried again",
        *,
        after: float | timedelta | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = None if after is None else _seconds(after)


def _seconds(after: object) -> float:
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise invalid_input("after", after, "must be a number of seconds or a timedelta")
    if not -_CENTURY <= seconds <= _CENTURY:
        raise invalid_input("after", after, "must be a number of seconds within a century")
    return float(seconds)


_CENTURY: Final = 100 * 365 * 24 * 60 * 60
HANDLER_ERROR: Final = "handler_error"
HANDLER_PANIC: Final = "handler_panic"
PAYLOAD_DECODE: Final = "extractor_payload_decode"
RESULT_ENCODE: Final = "result_encode"
