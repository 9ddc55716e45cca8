"""From a request to the answer of its route, or to a problem."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, get_args, get_origin
from urllib.parse import parse_qsl, quote

import msgspec

from flowfabric.api.problems import problem_of, status_of
from flowfabric.audit import acting_for
from flowfabric.errors import FlowFabricError, OperationTimeout
from flowfabric.server import sse
from flowfabric.server.asgi import (
    AsgiScope,
    Disconnected,
    Receive,
    Send,
    cancel_all,
    disconnected,
    read_body,
    send_answer,
    send_head,
)
from flowfabric.server.call import ApiCall, RawBytes, Reply
from flowfabric.server.etags import etag_of, is_none_match
from flowfabric.server.limits import (
    check_depth,
    check_packed_texts,
    check_surrogates,
    check_texts,
)
from flowfabric.server.pages import FreeText
from flowfabric.server.problems import RequestProblem, invalid, of_decoding
from flowfabric.server.table import Route

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"
_JSON_MEDIA, _MSGPACK_MEDIA = JSON.encode(), MSGPACK.encode()
_UNKNOWN_OUTCOME: Final = (
    "whether it took effect is unknown: read what it changes, or repeat it with the same id or key"
)
_IN_HEADERS: Final = "!#$&'()*+,/:;=?@[]^`{|} \"<>\\"
"""What a header has as it is, beside letters and digits; the rest is percent-encoded."""
_NO_PARAMETERS: Final[Mapping[str, str]] = {}
_NO_HEADERS: Final[Mapping[str, str]] = {}
READ_WITHIN: Final = 5.0
"""Seconds that a read may take."""


class Endpoint:
    """The routes of one path, by method."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self._routes = routes
        self.allowed = ", ".join(sorted({*routes, "OPTIONS", *(["HEAD"] * ("GET" in routes))}))
        self.path = next(iter(routes.values())).path

    def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> Awaitable[None]:
        state = scope["ff"]
        state.template = self.path
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method == "OPTIONS":
            return send_answer(send, 204, b"", state.headers({"allow": self.allowed}))
        found = self._routes.get(method)
        if found is None:
            headers = {"allow": self.allowed}
            detail = f"{self.path} has {self.allowed}"
            raise RequestProblem("method_not_allowed", detail, headers=headers)
        principal = state.principal
        if found.scope not in principal.scopes:
            principal.require(found.scope)
        return _answer(found, state, scope, receive, send)


async def _answer(route: Route, state: Any, scope: AsgiScope, receive: Receive, send: Send) -> None:
    headers: Mapping[bytes, bytes] = state.request_headers
    services, principal, client = state.services, state.principal, scope.get("client")
    call = ApiCall(
        services,
        principal,
        scope.get("path_params", _NO_PARAMETERS),
        headers,
        scope["path"],
        _wants_packed(headers),
        state.request_id,
        client[0] if client else "",
    )
    arguments: list[Any] = []
    if route.query is not None:
        arguments.append(_query(route.query, scope["query_string"]))
    elif scope["query_string"]:
        arguments_given = parse_qsl(scope["query_string"].decode("latin-1"))
        if arguments_given:
            raise invalid(arguments_given[0][0], "is no parameter of this route")
    if route.ignores_if_match and b"if-match" in headers:
        raise invalid("If-Match", "is not compared by this route")
    meter, waits = services.meter, route.may_wait
    use = meter.begin(principal.who, waits=waits) if route.limited else None
    try:
        if route.body is not None:
            arguments.append(await _body(route, receive, headers))
        if route.streams:
            await _stream(route, call, arguments, state, scope, receive, send)
            return
        if route.audited:
            with acting_for(call.actor, call.request_id, reason=_reason(arguments)):
                value = await _handled(route, route.handler(call, *arguments), receive)
        else:
            value = await _handled(route, route.handler(call, *arguments), receive)
    finally:
        if use is not None:
            meter.end(use, waits=waits)
    await _send(route, call, value, state, send)


async def _stream(
    route: Route,
    call: ApiCall,
    arguments: Sequence[Any],
    state: Any,
    scope: AsgiScope,
    receive: Receive,
    send: Send,
) -> None:
    """Send the events of the handler until they end, the client leaves or the server stops."""
    if scope["method"] == "HEAD":  # nothing would end what has no body
        await send_answer(send, 200, b"", state.headers(sse.HEADERS))
        return
    with call.services.meter.stream(call.principal.who):  # before the handler subscribes
        events = await route.handler(call, *arguments)
        await send_head(send, 200, state.headers(sse.HEADERS))
        await sse.send_events(events, receive, send, call.services.draining)
        await send({"type": "http.response.body", "body": b""})


def _handled(route: Route, handling: Any, receive: Receive) -> Any:
    """Waits for the handler: no longer than a read may take, or than its client does."""
    if route.waits:
        return _unless_gone(handling, receive)
    return _in_time(route.name, handling) if route.reads else _written(handling)


def _reason(arguments: Sequence[Any]) -> str | None:
    """What the caller gives as its reason, in the body or in the URL."""
    for each in arguments:
        reason = getattr(each, "reason", None)
        if isinstance(reason, str):
            return reason
    return None


async def _in_time(name: str, handling: Any) -> Any:
    """The answer of a read; raises `OperationTimeout` after `READ_WITHIN` seconds."""
    try:
        async with asyncio.timeout(READ_WITHIN):
            return await handling
    except TimeoutError:
        raise OperationTimeout(name, READ_WITHIN) from None


async def _written(handling: Any) -> Any:
    """The answer of a change; one that ran out of time says how to find out whether it was made."""
    try:
        return await handling
    except OperationTimeout as error:
        error.args = (f"{error}; {_UNKNOWN_OUTCOME}",)
        raise


async def _unless_gone(handling: Any, receive: Receive) -> Any:
    """The answer of the handler, which is cancelled when the client leaves."""
    handler = asyncio.ensure_future(handling)
    gone = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait((handler, gone), return_when=asyncio.FIRST_COMPLETED)
        if handler.done():
            return handler.result()
        handler.cancel()
        with contextlib.suppress(asyncio.CancelledError, FlowFabricError):
            await handler
        raise Disconnected
    finally:
        await cancel_all([gone, *([] if handler.done() else [handler])])


async def _send(route: Route, call: ApiCall, value: Any, state: Any, send: Send) -> None:
    status, more, version = route.first_status, _NO_HEADERS, None
    if isinstance(value, Reply):
        status, more, version = value.status or status, value.headers, value.version
        value = value.value
    headers = state.headers(more)
    accepts = call.headers.get(b"accept-encoding", b"")
    if isinstance(value, RawBytes):
        headers |= _described(value)
        await send_answer(send, status, value.data, headers, accepts=accepts)
        return
    write = route.answer_writer(status, packed=call.packed)
    if write is None:
        await send_answer(send, status, b"", headers)
        return
    headers["content-type"] = MSGPACK if call.packed else JSON
    body = write(value)
    if version is not None:
        headers["etag"] = etag_of(version, body)
        if is_none_match(call.header("if-none-match"), headers["etag"]):
            await send_answer(send, 304, b"", headers)
            return
    await send_answer(send, status, body, headers, accepts=accepts)


def _described(raw: RawBytes) -> dict[str, str]:
    """The headers that say what the bytes are."""
    if raw.media is not None:
        return {"content-type": raw.media}
    is_json = raw.encoding in (None, "json") and raw.data != b""  # which is no JSON
    media = JSON if is_json else "application/octet-stream"
    return {"content-type": media, "x-ff-encoding": quote(raw.encoding or "json", _IN_HEADERS)}


def _wants_packed(headers: Mapping[bytes, bytes]) -> bool:
    accept = headers.get(b"accept", b"*/*")
    if _MSGPACK_MEDIA in accept:
        return True
    if b"*/*" in accept or b"application/" in accept or b"text/event-stream" in accept:
        return False
    raise RequestProblem("not_acceptable", f"answers are {JSON} or {MSGPACK}")


async def _body(route: Route, receive: Receive, headers: Mapping[bytes, bytes]) -> Any:
    """The decoded body; an empty one is an object without members."""
    data = await read_body(receive, headers, route.limit, route.path)
    media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    packed = media == _MSGPACK_MEDIA
    if not data:
        data = b"\x80" if packed else b"{}"
    elif not packed and media != _JSON_MEDIA:
        raise RequestProblem("unsupported_media_type", f"a body is {JSON} or {MSGPACK}")
    reader = route.packed_body_reader if packed else route.body_reader
    try:
        given = reader.decode(data)
        if not packed:
            check_depth(data)
    except msgspec.DecodeError as error:
        check_surrogates(data)
        raise of_decoding(error) from None
    except UnicodeDecodeError:
        raise RequestProblem("invalid_body", "the body is not UTF-8") from None
    except RecursionError:
        raise invalid("", "nested too deeply") from None
    if packed:
        check_packed_texts(given, data)
    elif b"\\u0000" in data:
        check_texts(given)
    return reader.load(given)


def _query(kind: type[msgspec.Struct], query: bytes) -> Any:
    """The parameters of the URL; a parameter of a list may be repeated.

    Words of a list may also be separated by commas, unless they are `FreeText`.
    """
    found: dict[str, Any] = {}
    lists = _lists(kind)
    try:
        pairs = parse_qsl(query.decode(), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise invalid("", "the parameters of the URL are not UTF-8") from None
    for name, value in pairs:
        if "\x00" in value or "\x00" in name:
            raise invalid(name.replace("\x00", ""), "contains a NUL character")
        if name in lists:
            found.setdefault(name, []).extend(value.split(",") if lists[name] else [value])
        elif name in found:
            raise invalid(name, "is given twice")
        else:
            found[name] = value
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise of_decoding(error) from None


@functools.cache
def _lists(kind: type[msgspec.Struct]) -> Mapping[str, bool]:
    """The parameters that are lists: may commas separate their words?"""
    return {
        field.encode_name: get_args(field.type) != (FreeText,)
        for field in msgspec.structs.fields(kind)
        if get_origin(field.type) is list
    }


def problem_answer(
    error: FlowFabricError | RequestProblem, instance: str
) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """Status, members and headers of the problem."""
    if isinstance(error, RequestProblem):
        return error.status, error.members(instance), error.headers
    status = status_of(error)
    headers = {"retry-after": "1"} if status in (429, 503) and error.retryable else {}
    return status, problem_of(error, instance=instance), headers
