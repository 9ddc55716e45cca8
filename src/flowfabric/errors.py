"""Every error FlowFabric raises. A class carries its wire code, HTTP status and retry class."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from flowfabric.ids import ExecutionId


class RetryClass(StrEnum):
    """What a caller does with an error."""

    TERMINAL = "terminal"
    RETRYABLE = "retryable"
    COOPERATIVE = "cooperative"
    INFORMATIONAL = "informational"
    BUG = "bug"


class FlowFabricError(Exception):
    """The root. `kind` is the category, `code` the precise obstacle."""

    kind: ClassVar[str] = "internal"
    code: str = "internal"
    http_status: ClassVar[int] = 500
    retry_class: ClassVar[RetryClass] = RetryClass.TERMINAL

    @property
    def retryable(self) -> bool:
        """Can the same call succeed later?"""
        return self.retry_class is RetryClass.RETRYABLE


class ConfigError(FlowFabricError):
    """A setting is missing or cannot be honoured; nothing was started."""

    kind = "config"
    code = "config"

    def __init__(self, context: str, field: str, message: str) -> None:
        super().__init__(f"{context}: {field}: {message}")
        self.context, self.field = context, field


class TransportError(FlowFabricError):
    """The database could not be reached, or the connection broke; the call may be repeated."""

    kind = "transport"
    code = "transport"
    retry_class = RetryClass.RETRYABLE


class WorkerAtCapacity(FlowFabricError):
    """No slot is free; nothing was claimed."""

    kind = "worker_at_capacity"
    code = "worker_at_capacity"
    http_status = 429
    retry_class = RetryClass.RETRYABLE


class EngineError(FlowFabricError):
    """A refusal by the engine: typed, precise, and nothing was written."""


class NotFound(EngineError):
    """No such entity."""

    kind = "not_found"
    http_status = 404

    def __init__(self, entity: str, name: object) -> None:
        super().__init__(f"{entity} {name} does not exist")
        self.entity, self.name = entity, name
        self.code = f"{entity}_not_found"


class ValidationError(EngineError):
    """The input cannot be honoured; `code` is one of the validation kinds, `detail` says why."""

    kind = "validation"
    http_status = 400
    CODES: ClassVar[frozenset[str]] = frozenset(
        {
            "capability_mismatch",
            "corruption",
            "handle_from_other_backend",
            "invalid_capabilities",
            "invalid_input",
            "invalid_policy_json",
            "payload_too_large",
        }
    )

    def __init__(self, code: str, detail: str) -> None:
        assert code in self.CODES, code
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


def invalid_input(field: str, value: object, why: str) -> ValidationError:
    """The validation error for one field, naming it and what was given."""
    return ValidationError("invalid_input", f"{field} {value!r} {why}")


class Contention(EngineError):
    """The execution is not in the state the call needs; read it again before another try."""

    kind = "contention"
    http_status = 409
    retry_class = RetryClass.RETRYABLE


class ExecutionNotActive(Contention):
    """Nobody holds the execution: it has ended, or waits to be claimed. A lease holder stops."""

    code = "execution_not_active"
    retry_class = RetryClass.TERMINAL

    def __init__(
        self,
        execution_id: ExecutionId,
        *,
        lifecycle_phase: str,
        terminal_outcome: str,
        lease_epoch: int,
        attempt_id: object,
    ) -> None:
        ended = f", ended as {terminal_outcome}" if lifecycle_phase == "terminal" else ""
        super().__init__(f"execution {execution_id} is {lifecycle_phase}{ended}, not active")
        self.execution_id = execution_id
        self.lifecycle_phase, self.terminal_outcome = lifecycle_phase, terminal_outcome
        self.lease_epoch, self.attempt_id = lease_epoch, attempt_id


class RetryExhausted(Contention):
    """Serialization conflicts persisted through every retry; nothing was written."""

    code = "retry_exhausted"
    http_status = 503

    def __init__(self, operation: str, attempts: int) -> None:
        super().__init__(f"{operation}: gave up after {attempts} serialization conflicts")
        self.operation, self.attempts = operation, attempts


class Conflict(EngineError):
    """The request contradicts what is stored."""

    kind = "conflict"
    http_status = 409


class StateError(EngineError):
    """The execution's state forbids the call, for good."""

    kind = "state"
    http_status = 409


class StaleLease(StateError):
    """Another lease superseded this one; drop the work and claim again."""

    code = "stale_lease"

    def __init__(self, execution_id: ExecutionId, *, held: int, current: int) -> None:
        super().__init__(f"execution {execution_id}: epoch {held} was superseded by {current}")
        self.execution_id, self.held, self.current = execution_id, held, current


class LeaseExpired(StateError):
    """The lease ran out before this call; drop the work."""

    code = "lease_expired"

    def __init__(self, execution_id: ExecutionId, *, lease_epoch: int) -> None:
        super().__init__(f"execution {execution_id}: the lease of epoch {lease_epoch} ran out")
        self.execution_id, self.lease_epoch = execution_id, lease_epoch


class TaskConsumed(StateError):
    """The claimed task was already ended by an earlier call."""

    code = "attempt_already_terminal"
    retry_class = RetryClass.INFORMATIONAL


class Unavailable(EngineError):
    """The operation cannot be served by this deployment as it stands."""

    kind = "unavailable"
    http_status = 503

    def __init__(self, operation: str, why: str) -> None:
        super().__init__(f"{operation}: {why}")
        self.operation = operation
        self.code = "unavailable"


class ResourceExhausted(EngineError):
    """A bounded resource is used up: connections, disk, memory."""

    kind = "resource_exhausted"
    code = "resource_exhausted"
    http_status = 429
    retry_class = RetryClass.RETRYABLE

    def __init__(self, resource: str, why: str) -> None:
        super().__init__(f"{resource} exhausted: {why}")
        self.resource = resource


class OperationTimeout(EngineError):
    """The operation did not finish in its time; whether it took effect is unknown."""

    kind = "timeout"
    code = "timeout"
    http_status = 504

    def __init__(self, operation: str, seconds: float | None = None) -> None:
        after = f" after {seconds:g} s" if seconds is not None else ""
        super().__init__(f"{operation}: timed out{after}")
        self.operation, self.seconds = operation, seconds


class InternalError(EngineError):
    """A statement failed in a way nobody foresaw: a bug, reported with its SQLSTATE."""

    kind = "bug"
    code = "internal"
    retry_class = RetryClass.BUG


Refusal = NotFound | ExecutionNotActive | StaleLease | LeaseExpired
"""Why a fenced call on one execution was refused."""


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


class ResultTimeout(FlowFabricError):
    """The execution had not ended within the time the caller waited; it goes on."""

    kind = "timeout"
    code = "result_timeout"
    retry_class = RetryClass.RETRYABLE

    def __init__(self, execution_id: ExecutionId, seconds: float) -> None:
        super().__init__(f"execution {execution_id} has not ended within {seconds:g} s")
        self.execution_id, self.seconds = execution_id, seconds


class LeaseLost(FlowFabricError):
    """The lease of the running attempt is gone; whatever the handler does now is not recorded."""

    kind = "lease_lost"
    code = "lease_lost"


class Fail(FlowFabricError):
    """Raised by a handler: the attempt failed, with a reason and a category of the user's own."""

    kind = "handler"
    code = "fail"

    def __init__(
        self, reason: str, *, category: str = "handler_error", retryable: bool | None = None
    ) -> None:
        super().__init__(reason)
        self.reason, self.category, self.may_retry = reason, category, retryable


HANDLER_ERROR: Final = "handler_error"
HANDLER_PANIC: Final = "handler_panic"
PAYLOAD_DECODE: Final = "extractor_payload_decode"
RESULT_ENCODE: Final = "result_encode"
