"""Errors for a caller that waits for an execution, and errors that a handler raises."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

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
    """The execution failed, and its policy allowed no further retry."""

    code = "execution_failed"

    def __init__(self, execution_id: ExecutionId, reason: str | None, category: str | None) -> None:
        super().__init__(execution_id, f"failed ({category}): {reason}")
        self.reason, self.category = reason, category


class ExecutionCancelled(OutcomeError):
    """The execution was cancelled, by an operator, its flow or its parent."""

    code = "execution_cancelled"

    def __init__(self, execution_id: ExecutionId, reason: str | None, by: str | None) -> None:
        super().__init__(execution_id, f"was cancelled by {by}: {reason}")
        self.reason, self.cancelled_by = reason, by


class ExecutionExpired(OutcomeError):
    """The deadline of the execution passed, or its last attempt exceeded its timeout."""

    code = "execution_expired"

    def __init__(
        self, execution_id: ExecutionId, reason: str | None, why: str | None = None
    ) -> None:
        """`reason` is the stored code, `why` the words for it."""
        super().__init__(execution_id, f"expired: {why or reason}")
        self.reason = reason


class ExecutionSkipped(OutcomeError):
    """The execution never ran, because an execution that it depends on did not succeed."""

    code = "execution_skipped"

    def __init__(self, execution_id: ExecutionId) -> None:
        super().__init__(execution_id, "was skipped: a dependency did not succeed")


class ChildFailed(OutcomeError):
    """A child ended without a result; raised in the handler that waits for the child."""

    code = "child_failed"

    def __init__(self, execution_id: ExecutionId, category: str, reason: str | None) -> None:
        super().__init__(execution_id, f"is a child that ended as {category}: {reason}")
        self.category, self.reason = category, reason


class ResultDecodeError(FlowFabricError):
    """The execution succeeded, but its stored result is not of the type that the task declares.

    `path` is the place in the value and `stored` its beginning. The task's annotation changed
    since, or another program stored the result. `client.handle(execution_id)` reads any result.
    """

    kind = "outcome"
    code = "result_decode"

    def __init__(
        self,
        execution_kind: str,
        *,
        path: str,
        wanted: str,
        why: str,
        stored: bytes,
        execution_id: ExecutionId | None = None,
    ) -> None:
        shown = repr(stored[:_SHOWN]) + ("…" if len(stored) > _SHOWN else "")
        of = "" if execution_id is None else f" of execution {execution_id}"
        super().__init__(
            f"the result{of} of kind {execution_kind!r} cannot be read as {wanted}:"
            f" {path}: {why}; stored is {shown}"
        )
        self.execution_id, self.execution_kind = execution_id, execution_kind
        self.path, self.wanted, self.why, self.stored = path, wanted, why, shown
        self._bytes = stored[: _SHOWN + 1]

    def of(self, execution_id: ExecutionId) -> ResultDecodeError:
        """The same error, with the id of the execution."""
        return ResultDecodeError(
            self.execution_kind,
            path=self.path,
            wanted=self.wanted,
            why=self.why,
            stored=self._bytes,
            execution_id=execution_id,
        )


class ResultTimeout(FlowFabricError):
    """The execution or flow did not end within the timeout; it continues, so wait again.

    For an execution, `handle.explain()` says why; `explanation` has that of a suspended one.
    """

    kind = "timeout"
    code = "result_timeout"
    retry_class = RetryClass.RETRYABLE

    def __init__(
        self, execution_id: ExecutionId | UUID, seconds: float, *, explanation: str | None = None
    ) -> None:
        hint = "" if isinstance(execution_id, UUID) else "; handle.explain() says why"
        why = hint if explanation is None else f": {explanation}"
        super().__init__(f"{execution_id} did not end within {seconds:g} s{why}")
        self.execution_id, self.seconds, self.explanation = execution_id, seconds, explanation


class LeaseLost(FlowFabricError):
    """The worker lost the lease of the running attempt; raised in the handler, which should stop.

    The outcome of the attempt is not recorded.
    """

    kind = "lease_lost"
    code = "lease_lost"


class Fail(FlowFabricError):
    """Raised by a handler: the attempt failed, for this reason and in this category.

    `retryable=False` ends the execution, True retries it if its policy allows, None leaves the
    choice to the category.
    """

    kind = "handler"
    code = "fail"

    def __init__(
        self, reason: str, *, category: str = "handler_error", retryable: bool | None = None
    ) -> None:
        super().__init__(reason)
        self.reason, self.category, self.may_retry = reason, category, retryable


class RetryLater(FlowFabricError):
    """Raised by a handler: end this attempt and retry, if the task's policy allows it.

    `raise RetryLater(after=30)` retries after 30 seconds, `raise RetryLater()` after the delay of
    the policy. The attempt counts towards `max_retries`. Raises `ValidationError` if `after` is not
    a duration, or `reason` no text.
    """

    kind = "handler"
    code = "retry"

    def __init__(
        self,
        reason: str = "the handler asked to be tried again",
        *,
        after: float | timedelta | None = None,
    ) -> None:
        if not isinstance(cast("object", reason), str):
            raise invalid_input("reason", reason, f"must be a text: write after={reason!r}")
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


_SHOWN: Final = 80
"""How many bytes of a stored result an error shows."""
_CENTURY: Final = 100 * 365 * 24 * 60 * 60
HANDLER_ERROR: Final = "handler_error"
HANDLER_PANIC: Final = "handler_panic"
PAYLOAD_DECODE: Final = "extractor_payload_decode"
RESULT_ENCODE: Final = "result_encode"
