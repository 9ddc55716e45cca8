"""The root of every error, and the errors that any call can raise."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Self


class RetryClass(StrEnum):
    """What a caller can do about an error."""

    TERMINAL = "terminal"
    """Stop: repeating the call does not help."""
    RETRYABLE = "retryable"
    """Wait, then repeat the call."""
    COOPERATIVE = "cooperative"
    """Do what the error asks, then stop."""
    INFORMATIONAL = "informational"
    """Nothing to do: continue."""
    BUG = "bug"
    """A bug of FlowFabric: report it."""


class FlowFabricError(Exception):
    """The root of every error; catch it to catch them all.

    `kind` is the category and `code` the exact cause. Programs compare `code`, not the text.
    """

    kind: ClassVar[str] = "internal"
    code: str = "internal"
    http_status: ClassVar[int] = 500
    retry_class: ClassVar[RetryClass] = RetryClass.TERMINAL

    @property
    def retryable(self) -> bool:
        """Can the same call succeed later?"""
        return self.retry_class is RetryClass.RETRYABLE


class ConfigError(FlowFabricError):
    """A setting is missing or cannot be used; nothing was started.

    `field` names the setting: correct it and start again.
    """

    kind = "config"
    code = "config"

    def __init__(self, context: str, field: str, message: str) -> None:
        super().__init__(f"{context}: {field}: {message}")
        self.context, self.field = context, field


class TransportError(FlowFabricError):
    """The database could not be reached, or the connection broke.

    Whether a write took effect is unknown. Idempotent calls may be repeated.
    """

    kind = "transport"
    code = "transport"
    retry_class = RetryClass.RETRYABLE


class ApiError(FlowFabricError):
    """The server refused the request: the token, a limit, or a problem that this client lacks.

    `status` is the HTTP status, `code` the kind of the problem, `body` its members.
    """

    kind = "api"
    code = "api"
    _retryable: bool = False

    def __init__(
        self, message: str, *, status: int, code: str, body: Mapping[str, object], retryable: bool
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.body, self._retryable = status, code, body, retryable

    @property
    def retryable(self) -> bool:
        """Can the same call succeed later?"""
        return self._retryable

    @classmethod
    def of(cls, members: Mapping[str, object]) -> Self:
        """The error of a problem document."""
        status, code = members.get("status"), str(members.get("kind", "api"))
        return cls(
            f"{code}: {members.get('detail', '')}",
            status=status if isinstance(status, int) else 500,
            code=code,
            body=members,
            retryable=members.get("retryable") is True,
        )


class EngineError(FlowFabricError):
    """The engine refused the call, and nothing was written; the subclass says why."""


class NotFound(EngineError):
    """The execution, flow, lane … named in the call does not exist, or was deleted."""

    kind = "not_found"
    http_status = 404

    def __init__(self, entity: str, name: object) -> None:
        super().__init__(f"{entity} {name} does not exist")
        self.entity, self.name = entity, name
        self.code = f"{entity}_not_found"


class ValidationError(EngineError):
    """An argument is invalid; correct it before calling again.

    `code` is one of `CODES`. `detail` names the field, its value and the rule; `field` is the
    field alone, if the error is about one.
    """

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
            "invalid_cursor",
            "invalid_dependency",
            "invalid_grace_ms",
            "invalid_input",
            "invalid_kid",
            "invalid_policy_json",
            "invalid_quota_spec",
            "invalid_secret_hex",
            "invalid_tag_key",
            "invalid_token",
            "invalid_waitpoint_for_execution",
            "missing_token",
            "partition_mismatch",
            "payload_too_large",
            "retention_limit_exceeded",
            "signal_limit_exceeded",
            "token_expired",
            "waitpoint_not_token_bound",
        }
    )

    def __init__(self, code: str, detail: str, *, field: str | None = None) -> None:
        assert code in self.CODES, code
        super().__init__(f"{code}: {detail}")
        self.code, self.detail, self.field = code, detail, field


def invalid_input(field: str, value: object, why: str) -> ValidationError:
    """A `ValidationError` that names the field, the value unless it is None, and the rule.

    Of a cursor the code is `invalid_cursor`: a program with an old one begins the list anew.
    """
    given = "" if value is None else f" {value!r}"
    code = "invalid_cursor" if field == "cursor" else "invalid_input"
    return ValidationError(code, f"{field}{given} {why}", field=field)


class Unavailable(EngineError):
    """This deployment cannot serve the operation: its schema, database or keys are not ready.

    The text says what an operator has to do, such as `ff migrate`.
    """

    kind = "unavailable"
    http_status = 503

    def __init__(self, operation: str, why: str) -> None:
        super().__init__(f"{operation}: {why}")
        self.operation = operation
        self.code = "unavailable"


class PermissionDenied(Unavailable):
    """The role of the connection lacks a right in the database.

    The text names the role and says which role to use, or what to grant.
    """

    http_status = 403

    def __init__(self, operation: str, why: str) -> None:
        super().__init__(operation, why)
        self.args = (why,)  # the name of a statement says nothing to the user of a role
        self.code = "permission_denied"


class NeedsDatabase(Unavailable):
    """The operation needs a connection to the database itself, and there is only one to a server.

    Another try finds the same: use a client or a worker that is given the address of the database.
    """

    def __init__(self, operation: str, why: str) -> None:
        super().__init__(operation, why)
        self.code = "needs_database"


class ResourceExhausted(EngineError):
    """Postgres is out of connections, disk or memory; call again later."""

    kind = "resource_exhausted"
    code = "resource_exhausted"
    http_status = 429
    retry_class = RetryClass.RETRYABLE

    def __init__(self, resource: str, why: str) -> None:
        super().__init__(f"{resource} exhausted: {why}")
        self.resource = resource


class OperationTimeout(EngineError):
    """The operation did not finish in time; whether it took effect is unknown."""

    kind = "timeout"
    code = "timeout"
    http_status = 504

    def __init__(self, operation: str, seconds: float | None = None) -> None:
        after = f" after {seconds:g} s" if seconds is not None else ""
        super().__init__(f"{operation}: timed out{after}")
        self.operation, self.seconds = operation, seconds


class InternalError(EngineError):
    """A statement failed with an unexpected SQLSTATE, which the text has: a bug to report."""

    kind = "bug"
    code = "internal"
    retry_class = RetryClass.BUG
