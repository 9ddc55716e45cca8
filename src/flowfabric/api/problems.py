"""Errors as problem documents: RFC 9457, with the code, the category and the facts of the error."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from flowfabric import errors
from flowfabric.errors import (
    FlowFabricError,
    InvalidToken,
    MissingToken,
    NeedsDatabase,
    NotFound,
    PermissionDenied,
    TokenExpired,
    Unavailable,
    ValidationError,
)
from flowfabric.ids import ExecutionId, GroupId, PartitionKey

TYPE: Final = "urn:flowfabric:problem:"
MEDIA_TYPE: Final = "application/problem+json"
_OWN: Final = frozenset({"code", "detail", "field", "kind", "args", "token"})
"""Attributes that are other members, or are never told."""
_MEMBERS: Final = frozenset(
    {"type", "title", "status", "kind", "category", "retryable", "detail", "instance", "errors"}
    | {"result"}
)
"""The members of every problem, and the tag of a refusal; what else there is are facts."""
_MOST_PARTITIONS: Final = 65536
_UUID_LENGTH: Final = 36
_PLAIN: Final = (str, int, float, bool, type(None))


class FieldProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one member of a request."""

    field: str
    detail: str


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused. Programs compare `kind`; the facts of the error are members."""

    type: str
    title: str
    status: int
    kind: str
    category: str
    retryable: bool
    detail: str
    instance: str | None = None
    errors: list[FieldProblem] | None = None


def problem_of(error: FlowFabricError, *, instance: str | None = None) -> dict[str, Any]:
    """The members of the problem: of every error the same, and then its facts."""
    found: dict[str, Any] = {
        name: _told(value)
        for name, value in vars(error).items()
        if name not in _OWN and not name.startswith("_") and _can_tell(value)
    }
    found |= {
        "type": TYPE + error.code,
        "title": _title(error),
        "status": status_of(error),
        "kind": error.code,
        "category": error.kind,
        "retryable": error.retryable,
        "detail": str(error),
    }
    if isinstance(error, ValidationError) and error.field is not None:
        found["errors"] = [{"field": error.field, "detail": error.detail}]
    if instance is not None:
        found["instance"] = instance
    return found


def status_of(error: FlowFabricError) -> int:
    """The HTTP status; an argument that is invalid by its content is 422."""
    if isinstance(error, ValidationError) and error.code in ("invalid_input", "invalid_cursor"):
        return 422
    return error.http_status


def _title(error: FlowFabricError) -> str:
    text = (type(error).__doc__ or type(error).__name__).strip().split("\n")[0]
    return text.split(";")[0].rstrip(".:")


def _can_tell(value: object) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return all(_can_tell(each) for each in cast("Collection[object]", value))
    ids = (ExecutionId, GroupId, PartitionKey, UUID)
    return isinstance(value, (*_PLAIN, *ids, datetime, timedelta, Enum))


def _told(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case timedelta():
            return value.total_seconds()
        case ExecutionId() | GroupId() | PartitionKey() | UUID():
            return str(value)
        case list() | tuple() | set() | frozenset():
            return [_told(each) for each in cast("Collection[Any]", value)]
        case _:
            return value


def error_of(members: Mapping[str, Any]) -> FlowFabricError | None:
    """The error that a problem was made from, with its facts; None for an unknown kind.

    Ids are ids again and instants datetimes; other facts are as JSON has them.
    """
    kind: str = members["kind"]
    known = _classes().get(kind)
    if known is None and kind in ValidationError.CODES:
        known = ValidationError
    missing = members.get("category") == NotFound.kind or known is None
    if kind.endswith("_not_found") and missing:  # another error may have the same code
        known = NotFound
    if known is None:
        return None
    error = known.__new__(known)
    error.args = (members.get("detail", kind),)
    error.code = kind
    for name, value in members.items():
        if name not in _MEMBERS:
            setattr(error, name, _fact(name, value))
    if isinstance(error, ValidationError):
        errors: list[dict[str, str]] = members.get("errors") or [{}]
        error.field = errors[0].get("field")
        error.detail = str(error).removeprefix(f"{kind}: ")
    return error


@functools.cache
def _classes() -> dict[str, type[FlowFabricError]]:
    """The class of each code; of several, the one that is defined last is the most special."""
    # These set their code when they are made.
    found: dict[str, type[FlowFabricError]] = {
        "unavailable": Unavailable,
        "permission_denied": PermissionDenied,
        "needs_database": NeedsDatabase,
        "invalid_token": InvalidToken,
        "missing_token": MissingToken,
        "token_expired": TokenExpired,
    }
    for name in errors.__all__:
        each = getattr(errors, name)
        if inspect.isclass(each) and issubclass(each, FlowFabricError) and "code" in vars(each):
            found[each.code] = each
    return found


def _fact(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    with contextlib.suppress(ValidationError, ValueError):
        if value.startswith("{fp:"):
            return ExecutionId.parse(value, partitions=_MOST_PARTITIONS)
        if name.endswith("_id") and len(value) == _UUID_LENGTH:
            return UUID(value)
        if name.endswith(("_at", "_until")) or name == "until":
            return datetime.fromisoformat(value)
    return value
