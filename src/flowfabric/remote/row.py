"""An operation as a request: the parameters, the answer and their forms follow from its signature.

`remote(operation, "POST /v1/work/renew", answer="results")` is a method with the parameters of the
operation without its connection. A parameter that the path names goes there; the others are
parameters of the URL for GET and DELETE, and members of the body else.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar, cast
from urllib.parse import quote

import msgspec

from flowfabric.api.forms import Wanted, form
from flowfabric.api.leaves import Form
from flowfabric.errors import NeedsDatabase, NotFound
from flowfabric.ids import clean_text
from flowfabric.instants import epoch_ms
from flowfabric.remote.transport import Request, Transport

P = ParamSpec("P")
T = TypeVar("T")

_IN: Final = Wanted("in", packed=True)
_OUT: Final = Wanted("out", packed=True, read=True)
_SERVERS: Final = frozenset(
    {"actor", "partitions", "requester", "registered_by", "fresh", "namespaces"}
)
"""Parameters that the server knows better: caller and namespaces are those of the token."""


_VERSIONS: Final = frozenset({"expected_last_mutation_at", "expected_version"})
"""Parameters that say which version was read: `If-Match`."""


class Caller(Protocol):
    """What a method needs of the engine that it belongs to."""

    @property
    def transport(self) -> Transport: ...
    @property
    def partitions(self) -> int: ...


RemoteMethod: TypeAlias = Callable[Concatenate[Caller, P], Coroutine[Any, Any, T]]


class RemoteRow(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """How an operation is asked of a server."""

    operation: Callable[..., Any]
    method: str
    path: str
    answer: str = ""
    """The member that has the answer; "": the whole body is the answer."""
    page: str = ""
    """The field of the answer that has the items of a page."""
    keyed: tuple[str, str] | None = None
    """The members of an item that are key and value of a dict."""
    flat: str = ""
    """The parameter whose fields are members themselves."""
    by: str = ""
    """The field of an item that is its key in a dict."""
    names: Mapping[str, str] = {}
    """What the route calls a parameter, where that differs; "" if only its default can be."""
    dropped: frozenset[str] = frozenset()
    """Parameters that the server finds out by itself."""
    nulls: frozenset[str] = frozenset()
    """Parameters for which None is a value."""
    in_url: frozenset[str] = frozenset()
    """Parameters of the URL beside a body."""
    cleans: bool = False
    """What cannot be stored is taken out of its texts, as the operation itself does."""
    optional: bool = False
    """An answer of 404 means that there is none."""
    raised: bool = False
    """A refusal, which the operation returns, is an error of the request."""
    reads: bool = False

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        whole = inspect.signature(self.operation)
        parameters = list(whole.parameters.values())[1:]  # without the connection
        return whole.replace(parameters=parameters)

    @functools.cached_property
    def hints(self) -> dict[str, Any]:
        """The types of the parameters and of the answer."""
        wanted = {name: each.annotation for name, each in self.signature.parameters.items()}
        wanted["return"] = self.signature.return_annotation
        named = types.SimpleNamespace(__annotations__=wanted)
        globals_ = inspect.unwrap(self.operation).__globals__
        return typing.get_type_hints(named, globalns=globals_, include_extras=True)

    @functools.cached_property
    def forms(self) -> dict[str, Form]:
        unused = (
            _SERVERS
            | _VERSIONS
            | self.dropped
            | {name for name, one in self.names.items() if not one}
        )
        names = self.signature.parameters
        return {name: _given(self.hints[name]) for name in names if name not in unused}

    def request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Request:
        """The request with these arguments; raises `NeedsDatabase` for one that no route takes."""
        bound = self.signature.bind(*args, **kwargs).arguments
        path, query = self.path, list[tuple[str, str]]()
        body: dict[str, Any] = {}
        if_match: str | None = None
        for name, value in bound.items():
            if name in _SERVERS or name in self.dropped:
                continue
            if value is None and name not in self.nulls:
                continue
            if name in _VERSIONS and value is not None:
                if_match = if_match_of(value)
                continue
            member = self.names.get(name, name)
            if member == "":
                default = self.signature.parameters[name].default
                if value != default:
                    raise NeedsDatabase(
                        self.operation.__name__, f"{name} cannot be given over HTTP"
                    )
                continue
            dumped = self.forms[name].dumped(value)
            if "{" + member + "}" in path:
                path = path.replace("{" + member + "}", quote(_text(dumped), safe=""))
            elif name == self.flat:
                body |= {each: one for each, one in dumped.items() if one is not None}
            elif self.method in ("GET", "DELETE") or name in self.in_url:
                query += _pairs(member, dumped)
            else:
                body[member] = _cleaned(dumped) if self.cleans else dumped
        has_body = self.method not in ("GET", "DELETE")
        return Request(
            method=self.method,
            path=path,
            query=query,
            body=body if has_body else None,
            if_match=if_match,
            reads=self.reads or self.method == "GET",
        )

    @functools.cached_property
    def _reader(self) -> Callable[[bytes], Any]:
        kind = self.hints["return"]
        if self.optional or self.raised:
            kind = _without(kind, refusals=self.raised)
        if self.page:
            return _page_reader(kind, self.page)
        if self.keyed is not None:
            return _dict_reader(kind, self.answer, self.keyed)
        if self.by:
            return _by_reader(kind, self.answer, self.by)
        found = form(kind, _OUT)
        if not self.answer:
            decoder = msgspec.msgpack.Decoder(found.wire)
            return lambda body: found.loaded(decoder.decode(body))
        member, load = self.answer, found.loaded
        decoder = msgspec.msgpack.Decoder(_with(**{member: found.wire}))
        return lambda body: load(getattr(decoder.decode(body), member))

    def read(self, status: int, body: bytes) -> Any:
        """The answer of the operation."""
        if status == 204:
            return None
        return self._reader(body)

    async def call(
        self, transport: Transport, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Ask the server; raises the errors of the operation, and `TransportError`."""
        request = self.request(args, kwargs)
        if not self.optional and not self.raised:
            return self.read(*await transport.call(request))
        try:
            return self.read(*await transport.call(request))
        except NotFound:
            if self.optional:
                return None
            raise
        except Exception as error:
            refusals = _errors(self.hints["return"])
            if self.raised and isinstance(error, refusals):
                return error
            raise


def if_match_of(version: datetime | str) -> str:
    """The header that names the version."""
    return f'"{version if isinstance(version, str) else format(epoch_ms(version), "x")}"'


def remote(
    operation: Callable[Concatenate[Any, P], Awaitable[T]], route: str, **how: Any
) -> RemoteMethod[P, T]:
    """The operation as a request to this route."""
    method, path = route.split(" ")
    row = RemoteRow(operation=operation, method=method, path=path, **how)

    @functools.wraps(operation)
    async def call(self: Caller, *args: P.args, **kwargs: P.kwargs) -> T:
        return await row.call(self.transport, args, kwargs)

    call.row = row  # type: ignore[attr-defined]
    return call


# Types.


def _given(kind: Any) -> Form:
    """The form of a parameter, which may have more types than a member on the wire."""
    try:
        return form(kind, _IN)
    except TypeError:  # the value tells which of several types it has
        return Form(Any, lambda value: form(cast("Any", type(value)), _IN).dumped(value))


def _members(kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return (kind,)


def _errors(kind: Any) -> tuple[type[BaseException], ...]:
    found: list[type[BaseException]] = [
        each
        for each in _members(kind)
        if isinstance(each, type) and issubclass(each, BaseException)
    ]
    return tuple(found)


def _without(kind: Any, *, refusals: bool) -> Any:
    """The type of an answer that is there: without None, and without what is raised."""
    kept = [
        each
        for each in _members(kind)
        if each is not type(None) and not (refusals and each in _errors(kind))
    ]
    return typing.Union[tuple(kept)] if kept else type(None)  # noqa: UP007  made at runtime


def _with(**members: Any) -> type[msgspec.Struct]:
    """A struct with these members."""
    return msgspec.defstruct("Answer", list(members.items()), kw_only=True)


def _page_reader(kind: Any, items: str) -> Callable[[bytes], Any]:
    """Reads a page: its items and the cursor, whatever the operation calls them."""
    hints = typing.get_type_hints(kind, include_extras=True)
    [cursor] = [name for name in hints if name.startswith("next_")]
    found, place = form(hints[items], _OUT), form(_without(hints[cursor], refusals=False), _OUT)
    decoder = msgspec.msgpack.Decoder(_with(items=found.wire, next_cursor=str | None))

    def read(body: bytes) -> Any:
        answer: Any = decoder.decode(body)
        after = answer.next_cursor
        if after is not None:
            after = place.loaded(msgspec.convert(after, place.wire, strict=False))
        return kind(**{items: found.loaded(answer.items), cursor: after})

    return read


def _dict_reader(kind: Any, member: str, keyed: tuple[str, str]) -> Callable[[bytes], Any]:
    key, value = (form(each, _OUT) for each in typing.get_args(kind))
    item = _with(**{keyed[0]: key.wire, keyed[1]: value.wire})
    decoder = msgspec.msgpack.Decoder(_with(**{member: list[item]}))  # type: ignore[valid-type]

    def read(body: bytes) -> Any:
        return {
            key.loaded(getattr(each, keyed[0])): value.loaded(getattr(each, keyed[1]))
            for each in getattr(decoder.decode(body), member)
        }

    return read


def _by_reader(kind: Any, member: str, key: str) -> Callable[[bytes], Any]:
    found = form(list[typing.get_args(kind)[1]], _OUT)  # type: ignore[misc]
    decoder = msgspec.msgpack.Decoder(_with(**{member: found.wire}))

    def read(body: bytes) -> Any:
        items = found.loaded(getattr(decoder.decode(body), member))
        return {getattr(each, key): each for each in items}

    return read


# Parameters of URLs.


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str | int | float):
        return str(value)
    return str(msgspec.to_builtins(value))


def _cleaned(value: Any) -> Any:
    """The value with texts that can be stored; payloads are bytes, and stay."""
    match value:
        case str():
            return clean_text(value)
        case dict():
            members = cast("dict[str, Any]", value)
            return {name: _cleaned(each) for name, each in members.items()}
        case list():
            return [_cleaned(each) for each in cast("list[Any]", value)]
        case _:
            return value


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, list | tuple):
        return [(name, _text(each)) for each in cast("Sequence[Any]", value)]
    return [(name, _text(value))]
