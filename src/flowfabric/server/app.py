"""`app(engine)`: the ASGI application with every route."""

from __future__ import annotations

import itertools
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import chain
from typing import Final, Protocol, TypeAlias

import msgspec
from starlette.routing import BaseRoute, Mount, Router
from starlette.routing import Route as Path

from flowfabric.api.problems import MEDIA_TYPE
from flowfabric.counters import count_request
from flowfabric.db.turns import CALLER
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.server.access.origins import SAFE, check_host, check_origin
from flowfabric.server.access.principal import LOCAL, Principal
from flowfabric.server.asgi import AsgiScope, Disconnected, Receive, Send, Sender, send_answer
from flowfabric.server.cors import cors_headers, is_preflight
from flowfabric.server.endpoint import Endpoint, problem_answer
from flowfabric.server.limits import MAX_HEADERS, MAX_URL
from flowfabric.server.problems import RequestProblem
from flowfabric.server.routes import ROUTES
from flowfabric.server.services import Services
from flowfabric.server.settings import Settings
from flowfabric.server.table import Route
from flowfabric.states import Scope
from flowfabric.version import __version__

log: Final = logging.getLogger("flowfabric.server")
_PROCESS: Final = secrets.token_hex(8)
_NUMBERS: Final = itertools.count(secrets.randbelow(1 << 20))
"""Together the ids of requests that bring none: unique, and made without asking the system."""
_REQUEST_ID: Final = re.compile(rb"[\w-]{1,64}")
PUBLIC: Final = frozenset(
    route.path for route in ROUTES if route.scope is Scope.PUBLIC and "{" not in route.path
)
_ALWAYS: Final = {"x-ff-version": __version__, "x-content-type-options": "nosniff"}
_PUBLIC_PREFIXES: Final = ("/docs/", "/v1/callbacks/")


AsgiApp: TypeAlias = Callable[[AsgiScope, Receive, Send], Awaitable[None]]


class Mounted(Protocol):
    """An application below a path of this one; it finds out by itself who calls."""

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None: ...
    async def close(self) -> None:
        """It answers nothing any more."""
        ...


Mounting: TypeAlias = Callable[[Services], Mapping[str, Mounted]]
"""Makes the applications that are mounted, by their paths."""


class RequestState:
    """What is known of one request; the endpoint finds it in the scope."""

    def __init__(self, services: Services, headers: Mapping[bytes, bytes]) -> None:
        self.services, self.request_headers = services, headers
        self.principal: Principal = LOCAL
        self.template = "unknown"
        given = headers.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            self.request_id = given.decode()
        else:
            self.request_id = f"req_{_PROCESS}{next(_NUMBERS):08x}"
        self._extra = cors_headers(headers, services.settings) if b"origin" in headers else {}

    def headers(self, more: Mapping[str, str]) -> dict[str, str]:
        """The headers of an answer."""
        return {"x-request-id": self.request_id, **_ALWAYS, **self._extra, **more}


class Application:
    """Answers every request: by its route, or with a problem."""

    def __init__(
        self, services: Services, table: RoutingTable, mounted: Mapping[str, Mounted] | None = None
    ) -> None:
        self.services, self._table = services, table
        self.mounted = mounted or {}
        self._below = [(prefix, f"{prefix}/", each) for prefix, each in self.mounted.items()]

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        state = RequestState(self.services, dict(scope["headers"]))
        scope["ff"] = state
        began, sender = time.monotonic(), Sender(scope, send)
        try:
            await self._guarded(state, scope, receive, sender)
        except Disconnected:
            sender.status = 499
        except (FlowFabricError, RequestProblem) as error:
            if isinstance(error, RequestProblem) and error.status == 429:
                who, stopping = state.principal.who, self.services.draining
                await self.services.meter.hold_refusal(who, stopping)
            await _send_problem(state, error, sender)
        except Exception:
            log.exception("request %s failed", state.request_id)
            error = RequestProblem("internal", f"see the log of the server: {state.request_id}")
            await _send_problem(state, error, sender)
        finally:
            seconds = time.monotonic() - began
            count_request(scope["method"], state.template, sender.status, seconds)
            if log.isEnabledFor(logging.DEBUG):
                log.debug(
                    "%s %s %s %.1f ms %s %s",
                    scope["method"],
                    state.template,
                    sender.status,
                    seconds * 1000,
                    state.principal.label,
                    state.request_id,
                )

    async def _guarded(
        self, state: RequestState, scope: AsgiScope, receive: Receive, send: Send
    ) -> None:
        headers, settings = state.request_headers, self.services.settings
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_URL:
            raise RequestProblem("uri_too_long", f"a URL may have {MAX_URL} bytes")
        if sum(map(len, chain.from_iterable(scope["headers"]))) > MAX_HEADERS:
            raise RequestProblem("headers_too_large", f"headers may have {MAX_HEADERS} bytes")
        check_host(headers, settings)
        method, path = scope["method"], scope["path"]
        if method == "OPTIONS" and is_preflight(headers, settings):
            await send_answer(send, 204, b"", state.headers({}))
            return
        if method not in SAFE:
            check_origin(headers, settings)
        for prefix, below, mounted in self._below:
            if path == prefix or path.startswith(below):
                state.template = prefix
                scope["root_path"] = scope.get("root_path", "") + prefix
                await mounted(scope, receive, send)
                return
            if path == "/" and method == "GET":
                target = {"location": f"{scope.get('root_path', '')}{prefix}/"}
                await send_answer(send, 303, b"", state.headers(target))
                return
        if path not in PUBLIC and not path.startswith(_PUBLIC_PREFIXES):
            given, authenticator = headers.get(b"authorization"), self.services.authenticator
            state.principal = authenticator.known(given) or await authenticator.principal(given)
            CALLER.set(state.principal.who)
        await self._table.app(path)(scope, receive, send)

    async def close(self) -> None:
        """Streams and waits end, here and in what is mounted; the engine stays open."""
        await self.services.close()
        for mounted in self.mounted.values():
            await mounted.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})


async def _send_problem(
    state: RequestState, error: FlowFabricError | RequestProblem, send: Sender
) -> None:
    status, members, headers = problem_answer(error, state.request_id)
    if send.status:  # the answer has begun: only the connection can say that it is not complete
        raise error
    headers = {**headers, "content-type": MEDIA_TYPE, "cache-control": "no-store"}
    await send_answer(send, status, msgspec.json.encode(members), state.headers(headers))


async def _no_route(scope: AsgiScope, receive: Receive, send: Send) -> None:
    raise RequestProblem("route_not_found", "there is no such route")


class RoutingTable:
    """Finds the endpoint of a path: by the whole path, unless it has parameters.

    Those with parameters are in one mount for each noun, so that few patterns are compared.
    """

    def __init__(self, routes: tuple[Route, ...] = ROUTES) -> None:
        paths: dict[str, dict[str, Route]] = {}
        for each in routes:
            methods = paths.setdefault(each.path, {})
            if each.method in methods:
                raise TypeError(f"{each.method} {each.path} is there twice")
            methods[each.method] = each
        self._endpoints: dict[str, Endpoint] = {}
        mounted: dict[str, list[BaseRoute]] = {}
        others: list[BaseRoute] = []
        for path in sorted(paths, key=_order):
            endpoint = Endpoint(paths[path])
            if "{" not in path:
                self._endpoints[path] = endpoint
                continue
            segments = path.split("/")
            if len(segments) <= 3:
                others.append(Path(path, endpoint))
                continue
            prefix, rest = "/".join(segments[:3]), "/" + "/".join(segments[3:])
            mounted.setdefault(prefix, []).append(Path(rest, endpoint))
        mounts = [
            Mount(prefix, app=Router(found, redirect_slashes=False, default=_no_route))
            for prefix, found in mounted.items()
        ]
        self._router = Router([*mounts, *others], redirect_slashes=False, default=_no_route)

    def app(self, path: str) -> AsgiApp:
        """What answers requests of this path."""
        return self._endpoints.get(path, self._router)


def _order(path: str) -> list[tuple[bool, str]]:
    """Paths with a text come before those with a parameter at the same place."""
    return [(segment.startswith("{"), segment) for segment in path.split("/")]


def app(
    engine: Engine, settings: Settings | None = None, *, mounting: Mounting | None = None
) -> Application:
    """The application over this engine, which the caller closes after it."""
    services = Services(engine, settings or Settings())
    mounted = None if mounting is None else mounting(services)
    return Application(services, RoutingTable(), mounted)
