"""The root of every error, and what can be wrong with any call."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


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
            "edge_group_policy_already_fixed",
            "handle_from_other_backend",
            "invalid_blocking_reason",
            "invalid_capabilities",
            "invalid_dependency",
            "invalid_grace_ms",
            "invalid_input",
            "invalid_kid",
            "invalid_policy_json",
            "invalid_secret_hex",
            "invalid_tag_key",
            "partition_mismatch",
            "payload_too_large",
        }
    )

    def __init__(self, code: str, detail: str) -> None:
        assert code in self.CODES, code
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


def invalid_input(field: str, value: object, why: str) -> ValidationError:
    """The validation error for one field, naming it and what was given, if anything was."""
    given = "" if value is None else f" {value!r}"
    return ValidationError("invalid_input", f"{field}{given} {why}")


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
