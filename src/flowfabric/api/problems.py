"""Errors as problem documents: RFC 9457, with the code, the category and the facts of the error."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from flowfabric.errors import FlowFabricError, ValidationError
from flowfabric.ids import ExecutionId, GroupId, PartitionKey

TYPE: Final = "urn:flowfabric:problem:"
MEDIA_TYPE: Final = "application/problem+json"
_OWN: Final = frozenset({"code", "detail", "field", "kind", "args", "token"})
"""Attributes that are other members, or are never told."""
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
    if isinstance(error, ValidationError) and error.code == "invalid_input":
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
