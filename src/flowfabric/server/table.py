"""The route table: one row per route, from which routing, access, limits and OpenAPI are made."""

from __future__ import annotations

import functools
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


_READ_BY_ANYBODY: Final = frozenset({Scope.READ, Scope.ANY, Scope.PUBLIC})
NOTHING: Final = None
"""The answer of a status without a body."""


class BodyReader(msgspec.Struct, frozen=True):
    """Decodes bodies to what the wire has, and loads that as what the handler is given."""

    decode: Callable[[bytes], Any]
    load: Callable[[Any], Any]


def _body_reader(found: Form | None, decoder: Callable[[Any], Any]) -> BodyReader:
    assert found is not None
    return BodyReader(decoder(found.wire).decode, found.load or found.loaded)


def _answer_writer(found: Form, *, packed: bool) -> Callable[[Any], bytes]:
    encode: Callable[[Any], bytes] = msgspec.msgpack.encode if packed else msgspec.json.encode
    dump = found.dump
    return encode if dump is None else lambda value: encode(dump(value))


class Route(msgspec.Struct, frozen=True, kw_only=True, dict=True):
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
    limited: bool = True
    """Does it count towards the limits of its caller?"""
    etag: bool = False
    idempotency_key: bool = False
    """May the header say what the member of this name says?"""
    if_match: bool = False
    """Does it compare `If-Match`? Other changes refuse the header instead of passing it over."""

    def __post_init__(self) -> None:
        if not self.answers:
            raise TypeError(f"{self.method} {self.path} has no answers")
        if (self.body is None) != (self.limit is NO_BODY):
            raise TypeError(f"{self.method} {self.path}: a body and its limit belong together")
        _ = self.answer_forms  # a type without a form on the wire does not import
        for packed in (False, True):
            self.body_form(packed=packed)

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

    @functools.cached_property
    def body_reader(self) -> BodyReader:
        """Decodes bodies of JSON."""
        return _body_reader(self.body_form(packed=False), msgspec.json.Decoder)

    @functools.cached_property
    def packed_body_reader(self) -> BodyReader:
        """Decodes bodies of MessagePack."""
        return _body_reader(self.body_form(packed=True), msgspec.msgpack.Decoder)

    @functools.cached_property
    def answer_forms(self) -> Mapping[tuple[int, bool], Form | None]:
        """The forms of the answers by status and `packed`; None if there is no body."""
        return {
            (status, packed): None if kind is NOTHING else form(kind, Wanted("out", packed))
            for status, kind in self.answers.items()
            for packed in (False, True)
        }

    def answer_writer(self, status: int, *, packed: bool) -> Callable[[Any], bytes] | None:
        """Encodes the answers of this status; None if there is no body."""
        found = self._writers.get((status, packed))
        if found is None:
            wanted = self.answer_forms[status, packed]
            if wanted is not None:
                found = self._writers[status, packed] = _answer_writer(wanted, packed=packed)
        return found

    @functools.cached_property
    def _writers(self) -> dict[tuple[int, bool], Callable[[Any], bytes]]:
        """The writers of the answers that were given: most routes of a process are never called."""
        return {}

    @functools.cached_property
    def first_status(self) -> int:
        """The status of an answer that names none."""
        return next(iter(self.answers))

    # What each request asks of its route; to compare enums costs as much as to answer.

    @functools.cached_property
    def streams(self) -> bool:
        """Does it answer with a stream of events?"""
        return self.kind is Kind.STREAM

    @functools.cached_property
    def may_wait(self) -> bool:
        """Does it count as a waiter, and not as a request at work?"""
        return self.waits or self.streams

    @functools.cached_property
    def reads(self) -> bool:
        """Has it the time of a read?"""
        return self.scope is Scope.READ

    @functools.cached_property
    def audited(self) -> bool:
        """Is what it does recorded with its caller? Not so what everybody may read."""
        return self.method != "GET" or self.scope not in _READ_BY_ANYBODY

    @functools.cached_property
    def ignores_if_match(self) -> bool:
        """Is it a change that does not compare `If-Match`?"""
        return self.method != "GET" and not self.if_match


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
