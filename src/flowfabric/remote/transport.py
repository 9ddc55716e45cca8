"""Requests to a server and their answers: connections are kept, and failures are errors of ours.

A request that the server did not take (no connection, 429, 503 of a server that stops) is sent
again for a while. One whose answer was lost is sent again only if it reads; else `TransportError`
says that it may have taken effect, and the caller decides, as with a lost database connection.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from flowfabric.api.problems import error_of
from flowfabric.errors import (
    ApiError,
    ConfigError,
    FlowFabricError,
    TransportError,
    Unavailable,
    ValidationError,
)
from flowfabric.remote.address import ServerAddress
from flowfabric.version import __version__

if TYPE_CHECKING:
    import aiohttp

log: Final = logging.getLogger("flowfabric.remote")
_MSGPACK: Final = "application/msgpack"
_CONNECTIONS: Final = 16
_KEEP_ALIVE: Final = 30.0
"""Seconds until an idle connection is closed here: before the server closes it."""
_QUIET: Final = 40.0
"""Seconds without a byte after which a stream counts as broken: the server sends a comment."""
_FIRST_PAUSE: Final = 0.1
_LAST_PAUSE: Final = 10.0
_NOT_TAKEN: Final = frozenset({"too_many_requests", "draining", "not_ready"})
"""Kinds of problems of requests that were not begun."""
_LOST: Final = frozenset({502, 504})
_INVALID: Final = {
    "invalid_request": "invalid_input",
    "invalid_body": "invalid_input",
    "body_too_large": "payload_too_large",
}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the server."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: Mapping[str, Any] | None = None
    if_match: str | None = None
    """The version that the change is meant for."""
    wait: float = 0.0
    """For how many seconds the server may wait before it answers."""
    reads: bool = False
    """It changes nothing, so it may be sent again after its answer was lost."""


class _NotTaken(Exception):
    """The server did not begin with the request; the text says why."""


class _Lost(Exception):
    """The request was sent, and its answer was lost."""


class Transport:
    """The connections of one process to one server; belongs to the event loop that uses it."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self._plain: aiohttp.ClientSession | None = None
        self._waiting: aiohttp.ClientSession | None = None
        self._warned = False
        self._closed = False

    async def close(self) -> None:
        """Every connection is closed, and requests raise `TransportError`."""
        self._closed = True
        for session in (self._plain, self._waiting):
            if session is not None:
                await session.close()

    async def call(self, request: Request) -> tuple[int, bytes]:
        """The status and the body of the answer; raises the error that the server answered."""
        until, pause = time.monotonic() + self.address.retry_for, _FIRST_PAUSE
        while True:
            try:
                return await self._send(request)
            except _NotTaken as error:
                reason, may_have_happened = str(error), False
            except _Lost as error:
                reason, may_have_happened = str(error), not request.reads
            wait = random.uniform(0, pause)
            if may_have_happened or self._closed or time.monotonic() + wait > until:
                effect = "it may have taken effect" if may_have_happened else "it had no effect"
                where = f"{request.method} {request.path} at {self.address.url}"
                raise TransportError(f"{where}: {reason}; {effect}")
            await asyncio.sleep(wait)
            pause = min(pause * 2, _LAST_PAUSE)

    async def _send(self, request: Request) -> tuple[int, bytes]:
        import aiohttp

        session = self._session(waits=request.wait > 0)
        total = self.address.request_timeout + request.wait
        headers = {"accept": _MSGPACK}
        if request.if_match is not None:
            headers["if-match"] = request.if_match
        data = None
        if request.body is not None:
            headers["content-type"] = _MSGPACK
            data = msgspec.msgpack.encode(request.body)
        try:
            async with session.request(
                request.method,
                self._url(request),
                data=data,
                headers=headers,
                timeout=self._timeout(total),
                allow_redirects=False,
            ) as answer:
                body = await answer.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _NotTaken(_text(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _Lost(_text(error)) from None
        except RuntimeError as error:  # the session was closed meanwhile
            if not self._closed:
                raise
            raise _Lost(_text(error)) from None
        self._check_version(answer.headers.get("x-ff-version"))
        if answer.status < 300:
            return answer.status, body
        raise _problem(answer.status, body)

    async def events(
        self, path: str, query: Sequence[tuple[str, str]]
    ) -> AsyncGenerator[tuple[str, str, bytes]]:
        """Server-sent events as (id, event, data), until the stream ends.

        Raises the error that the server answered, and `TransportError` if the connection breaks.
        """
        import aiohttp

        session = self._session(waits=True)
        url = self._url(Request(method="GET", path=path, query=query))
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=self.address.connect_timeout, sock_read=_QUIET
        )
        try:
            async with session.get(
                url, headers={"accept": "text/event-stream"}, timeout=limits
            ) as answer:
                if answer.status != 200:
                    try:
                        raise _problem(answer.status, await answer.read())
                    except (_NotTaken, _Lost) as error:
                        raise TransportError(f"GET {path}: {error}") from None
                async for event in _events(answer.content):
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise TransportError(f"GET {path} at {self.address.url}: {_text(error)}") from None

    def _url(self, request: Request) -> Any:
        from yarl import URL

        query = f"?{urlencode(request.query)}" if request.query else ""
        return URL(self.address.url + request.path + query, encoded=True)

    def _timeout(self, total: float) -> aiohttp.ClientTimeout:
        import aiohttp

        return aiohttp.ClientTimeout(total=total, sock_connect=self.address.connect_timeout)

    def _session(self, *, waits: bool) -> aiohttp.ClientSession:
        """Requests that wait have connections of their own: they must not hold up the others."""
        if self._closed:
            why = f"the client of {self.address.url} is closed; connect another one"
            raise Unavailable("request", why)
        if waits:
            if self._waiting is None:
                self._waiting = self._new_session(0)
            return self._waiting
        if self._plain is None:
            self._plain = self._new_session(_CONNECTIONS)
        return self._plain

    def _new_session(self, connections: int) -> aiohttp.ClientSession:
        try:
            import aiohttp
        except ImportError:
            why = "a server is called by aiohttp: pip install 'flowfabric[http]'"
            raise ConfigError("server", "url", why) from None
        # To compress a batch takes longer than to send it, on either side.
        headers = {"user-agent": f"flowfabric/{__version__}", "accept-encoding": "identity"}
        if self.address.token is not None:
            headers["authorization"] = f"Bearer {self.address.token}"
        context: ssl.SSLContext | bool = True
        if self.address.ca is not None:
            try:
                context = ssl.create_default_context(cafile=self.address.ca)
            except OSError as error:
                raise ConfigError("server", "ca", f"{self.address.ca}: {error.strerror}") from None
        connector = aiohttp.TCPConnector(
            limit=connections, keepalive_timeout=_KEEP_ALIVE, ssl=context
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            proxy=_proxy_of_environment(self.address.url),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def _check_version(self, theirs: str | None) -> None:
        if theirs is None or theirs == __version__ or self._warned:
            return
        if _numbers(theirs) < _numbers(__version__):
            self._warned = True
            log.warning(
                "the server at %s is of version %s, older than this client: %s",
                self.address.url,
                theirs,
                __version__,
            )


def _proxy_of_environment(url: str) -> str | None:
    """The proxy that `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` name for the server.

    The session asks once: aiohttp itself would ask in a thread before each request.
    """
    from urllib.request import getproxies, proxy_bypass

    server = urlsplit(url)
    if server.hostname is not None and proxy_bypass(server.hostname):
        return None
    return getproxies().get(server.scheme)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in version.split(".")[:3] if each.isdigit())


def _problem(status: int, body: bytes) -> Exception:
    """The error that a problem document describes."""
    try:
        members = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        members = {}
    kind = members.get("kind")
    if not isinstance(kind, str):  # a proxy answered
        if status in (429, 503):
            return _NotTaken(f"status {status}")
        if status in _LOST:
            return _Lost(f"status {status}")
        detail = f"status {status}, and no problem document"
        return ApiError(detail, status=status, code="api", body=members, retryable=False)
    if kind in _NOT_TAKEN:
        return _NotTaken(f"{kind}: {members.get('detail', '')}")
    if kind in _INVALID:
        return _invalid(_INVALID[kind], members)
    found: FlowFabricError | None = error_of(members)
    return ApiError.of(members) if found is None else found


def _invalid(code: str, members: Mapping[str, Any]) -> ValidationError:
    errors: list[dict[str, str]] = members.get("errors") or [{}]
    return ValidationError(code, str(members.get("detail")), field=errors[0].get("field") or None)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def _events(content: aiohttp.StreamReader) -> AsyncGenerator[tuple[str, str, bytes]]:
    cursor, event, data, seen = "", "message", list[bytes](), False
    pending = b""
    while chunk := await content.readany():
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if not line:
                if seen:
                    yield cursor, event, b"\n".join(data)
                event, data, seen = "message", [], False
            elif name == b"data":
                data.append(value)
                seen = True
            elif name == b"id":  # alone it says where the stream is
                cursor, seen = value.decode(), True
            elif name == b"event":
                event = value.decode()
