"""The route table: one row per route, from which routing, access, limits and OpenAPI are made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from flowfabric.api.forms import Wanted, form
from flowfabric.api.leaves import Form
from flowfabric.states.access import Scope

RouteHandler: TypeAlias = Callable[..., Awaitable[Any]]


class BodyLimit(msgspec.Struct, frozen=True):
    """How many bytes a body may have."""

    word: str
    size: int


NO_BODY: Final = BodyLimit("none", 0)
CONTROL: Final = BodyLimit("control", 64 * 1024)
MEDIUM: Final = BodyLimit("medium", 256 * 1024)
LARGE: Final = BodyLimit("large", 1024 * 1024)
BATCH: Final = BodyLimit("batch", 8 * 1024 * 1024)


class Kind(StrEnum):
    """How a route answers."""

    PLAIN = "plain"
    RAW = "raw"
    """Bytes as they are stored."""
    STREAM = "stream"
    """Server-sent events."""


NOTHING: Final = None
"""The answer of a status without a body."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One route: who may call it, what it takes, and every answer that it gives on success."""

    method: str
    path: str
    handler: RouteHandler
    scope: Scope
    limit: BodyLimit
    answers: Mapping[int, Any]
    body: Any = None
    query: type[msgspec.Struct] | None = None
    kind: Kind = Kind.PLAIN
    waits: bool = False
    """May it wait for something? It then counts as a waiter, and not as a request at work."""
    etag: bool = False

    def __post_init__(self) -> None:
        if not self.answers:
            raise TypeError(f"{self.method} {self.path} has no answers")
        if (self.body is None) != (self.limit is NO_BODY):
            raise TypeError(f"{self.method} {self.path}: a body and its limit belong together")
        for packed in (False, True):  # a type without a form on the wire does not import
            self.body_form(packed=packed)
            for status in self.answers:
                self.answer_form(status, packed=packed)

    @property
    def name(self) -> str:
        """The name of the operation in the OpenAPI document."""
        return self.handler.__name__

    @property
    def noun(self) -> str:
        """The first segment of the path after the version."""
        segments = self.path.split("/")
        return segments[2] if len(segments) > 2 else segments[1]

    def body_form(self, *, packed: bool) -> Form | None:
        """The form of the body; None if there is none."""
        return None if self.body is None else form(self.body, Wanted("in", packed))

    def answer_form(self, status: int, *, packed: bool) -> Form | None:
        """The form of the answer with this status; None if it has no body."""
        kind = self.answers[status]
        return None if kind is NOTHING else form(kind, Wanted("out", packed))


def route(
    method: str,
    path: str,
    handler: RouteHandler,
    *,
    scope: Scope,
    answers: Mapping[int, Any],
    limit: BodyLimit = NO_BODY,
    **more: Any,
) -> Route:
    """A row of the table."""
    return Route(
        method=method,
        path=path,
        handler=handler,
        scope=scope,
        answers=answers,
        limit=limit,
        **more,
    )
