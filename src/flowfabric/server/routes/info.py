"""The server itself: probes, metrics, version, and the document that describes the routes."""

from __future__ import annotations

import hmac
import platform
from pathlib import Path
from typing import Final

import msgspec

from flowfabric.db.doctor import Finding, examine
from flowfabric.db.migrate import needed_version
from flowfabric.errors import FlowFabricError
from flowfabric.metrics.exposition import CONTENT_TYPE, exposition
from flowfabric.server.access.authenticate import CHALLENGE
from flowfabric.server.call import ApiCall, RawBytes, Reply
from flowfabric.server.problems import RequestProblem
from flowfabric.server.table import Kind, Route, route
from flowfabric.states import Scope
from flowfabric.version import __version__

_STATIC: Final = Path(__file__).parent.parent / "static"
_MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'"
)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """`ok`, and what is not."""

    status: str
    failing: list[str]


class Info(msgspec.Struct, frozen=True, kw_only=True):
    """What runs here."""

    version: str
    schema_version: int
    python: str
    partitions: int
    capabilities: list[str]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks of the database found."""

    items: list[Finding]


async def livez(call: ApiCall) -> Health:
    """The process runs; the database is not asked."""
    return Health(status="ok", failing=[])


async def healthz(call: ApiCall) -> Health:
    """The database answers."""
    await call.engine.has_tokens()
    return Health(status="ok", failing=[])


async def readyz(call: ApiCall) -> Reply:
    """May requests be sent here? 503 with what is failing if not."""
    failing = await call.services.failing()
    if failing:
        return Reply(value=Health(status="not_ready", failing=failing), status=503)
    return Reply(value=Health(status="ok", failing=[]))


async def metrics(call: ApiCall) -> RawBytes:
    """Metrics in the text format of Prometheus."""
    expected = call.services.settings.metrics_token
    if expected is not None:
        scheme, _, given = (call.header("authorization") or "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        if not hmac.compare_digest(given.encode(), expected.encode()):
            why = "the metrics need FF_METRICS_TOKEN"
            raise RequestProblem("unauthorized", why, headers=CHALLENGE)
    await call.services.gauges.refresh()
    text = exposition(call.services.shared_counters)
    return RawBytes(data=text, encoding=None, media=CONTENT_TYPE)


async def openapi_document(call: ApiCall) -> RawBytes:
    """The OpenAPI document of all routes."""
    from flowfabric.server.openapi import document_text  # it reads the table with this row in it

    _check_docs(call)
    return RawBytes(data=document_text(), encoding=None, media="application/json")


async def docs(call: ApiCall) -> Reply:
    """The routes as a page for people."""
    _check_docs(call)
    return _static("index.html")


async def docs_file(call: ApiCall) -> Reply:
    """A file of that page."""
    _check_docs(call)
    return _static(call.text("file"))


def _check_docs(call: ApiCall) -> None:
    if not call.services.settings.docs:
        raise RequestProblem("route_not_found", "there is no such route")


def _static(name: str) -> Reply:
    files = {each.name: each for each in _STATIC.iterdir()}
    found = files.get(name)
    media = None if found is None else _MEDIA.get(found.suffix)
    if found is None or media is None:
        raise RequestProblem("route_not_found", "there is no such route")
    headers = {"content-security-policy": _CSP, "referrer-policy": "no-referrer"}
    value = RawBytes(data=found.read_bytes(), encoding=None, media=media)
    return Reply(value=value, headers=headers)


async def info(call: ApiCall) -> Info:
    """Version, schema, and the operations that can be called."""
    from flowfabric.server.routes import ROUTES

    return Info(
        version=__version__,
        schema_version=needed_version(),
        python=platform.python_version(),
        partitions=call.engine.partitions,
        capabilities=sorted({each.name for each in ROUTES if each.path.startswith("/v1/")}),
    )


async def doctor(call: ApiCall) -> Findings:
    """What the checks of `ff doctor` find."""
    try:
        return Findings(items=await examine(call.engine.pool.config.dsn))
    except FlowFabricError as error:
        raise RequestProblem("not_ready", type(error).__name__) from None


ROUTES: Final[tuple[Route, ...]] = (
    route("GET", "/healthz", healthz, scope=Scope.PUBLIC, answers={200: Health}),
    # A process that is asked too much lives: who restarts those that do not must not restart it.
    route("GET", "/livez", livez, scope=Scope.PUBLIC, answers={200: Health}, limited=False),
    route("GET", "/readyz", readyz, scope=Scope.PUBLIC, answers={200: Health, 503: Health}),
    route("GET", "/metrics", metrics, scope=Scope.PUBLIC, answers={200: bytes}, kind=Kind.RAW),
    route(
        "GET",
        "/openapi.json",
        openapi_document,
        scope=Scope.PUBLIC,
        answers={200: bytes},
        kind=Kind.RAW,
    ),
    route("GET", "/docs", docs, scope=Scope.PUBLIC, answers={200: bytes}, kind=Kind.RAW),
    route(
        "GET", "/docs/{file}", docs_file, scope=Scope.PUBLIC, answers={200: bytes}, kind=Kind.RAW
    ),
    route("GET", "/v1/info", info, scope=Scope.READ, answers={200: Info}),
    route("GET", "/v1/doctor", doctor, scope=Scope.ADMIN, answers={200: Findings}),
)
