"""`app(engine)`: the dashboard as an ASGI application, to be mounted below a path."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from flowfabric.api.problems import status_of
from flowfabric.dashboard import acts, answer_page, csrf, inbox, login
from flowfabric.dashboard.access import PAGE, Access, PrincipalOf, Visitor, cookie, read_cookies
from flowfabric.dashboard.answers import HTML, Answer, PageAnswer, Raw, Redirect, Streamed
from flowfabric.dashboard.live import live
from flowfabric.dashboard.prefs import COOKIE as PREFS
from flowfabric.dashboard.prefs import Preferences
from flowfabric.dashboard.problems import PageProblem, not_found, title_of
from flowfabric.dashboard.regions import etag
from flowfabric.dashboard.render import render_bare, render_block, render_page
from flowfabric.dashboard.routes import PATHS, find
from flowfabric.dashboard.sending import send_pieces, send_raw
from flowfabric.dashboard.settings import DashboardSettings, is_wanted
from flowfabric.dashboard.site import Site
from flowfabric.dashboard.table import CONTROL, Act
from flowfabric.dashboard.visit import SentForm, Visit
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError, TransportError
from flowfabric.server.access.origins import check_host
from flowfabric.server.app import Mounted
from flowfabric.server.asgi import (
    AsgiScope,
    Disconnected,
    Receive,
    Send,
    read_body,
)
from flowfabric.server.problems import RequestProblem
from flowfabric.server.services import Services
from flowfabric.server.table import BodyLimit

log: Final = logging.getLogger("flowfabric.dashboard")
TOAST: Final = "ff_toast"
_READ_WITHIN: Final = 10.0
_SCRIPTED: Final = (b"x-ff-region", b"x-ff-dialog")


class Dashboard:
    """Answers every request below its path: by a page, or by one that says what is wrong."""

    def __init__(self, site: Site) -> None:
        self.site = site

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(self.site, receive, send)
            return
        if scope["type"] != "http":
            return
        await _Request(self.site, scope, receive, send).answer()

    async def close(self) -> None:
        """Nothing is read any more on behalf of viewers."""
        await self.site.close()


class _Request:
    """One request: from the path to the page, with the cookies that it sets."""

    def __init__(self, site: Site, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self.site, self.scope, self.receive, self.send = site, scope, receive, send
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        state = scope.get("ff")
        self.request_id: str = f"req_{secrets.token_hex(12)}" if state is None else state.request_id
        self.base: str = scope.get("root_path", "")
        self.path: str = scope["path"].removeprefix(self.base)
        self.cookies = read_cookies(self.headers.get(b"cookie", b""))
        self.secure: bool = scope.get("scheme") == "https"
        self.set_cookies: list[str] = []
        self.visit: Visit | None = None
        self.sent = False

    async def answer(self) -> None:
        """Answer, whatever happens."""
        try:
            await self._guarded()
        except Disconnected:
            return
        except (PageProblem, RequestProblem, FlowFabricError) as error:
            await self._problem(error)
        except Exception as error:
            if self.sent:
                raise
            log.exception("request %s failed", self.request_id)
            await self._problem(error)

    async def _guarded(self) -> None:
        method = "GET" if self.scope["method"] == "HEAD" else self.scope["method"]
        if method not in ("GET", "POST"):
            raise PageProblem(405, "Pages are read by GET, and changed by POST.")
        if self.path.startswith("/static/") and method == "GET":
            version, _, name = self.path.removeprefix("/static/").partition("/")
            gzipped = b"gzip" in self.headers.get(b"accept-encoding", b"")
            await self._raw(self.site.assets.answer(version, name, gzipped=gzipped))
            return
        if self.site.server is not None:
            check_host(self.headers, self.site.server)
        if self.path.startswith("/answer/"):
            await self._answered(method)
            return
        visitor = await self.site.access.visitor(self.scope, self.cookies)
        if self.path == "/login" and self.site.access.has_login:
            await self._login(method, visitor)
            return
        if visitor is None:
            await self._nobody(method)
            return
        visitor = self._bound(visitor)
        self.visit = visit = Visit(
            self.site,
            self.scope,
            visitor,
            headers=self.headers,
            now=await self.site.clock.now(),
            prefs=Preferences.of_cookie(self.cookies.get(PREFS, "")),
            request_id=self.request_id,
        )
        if self.path == "/live" and method == "GET":
            self.sent = True
            await live(visit, self.scope, self.receive, self.send)
            return
        if self.path == "" or (self.path == "/" and "/" not in PATHS):
            first = "/" if "/" in PATHS else "/executions"
            await self._redirect(Redirect(to=visit.url(first)))
            return
        found = find(self.path)
        if found is None:
            raise not_found()
        row, visit.params = found
        if method == "POST":
            await self._post(row, visit)
        elif isinstance(row, Act):
            await self._send(visit, await acts.ask(row, visit))
        elif visit.region:
            visit.require(row.scope)
            await self._region(row, visit)
        else:
            visit.require(row.scope)
            await self._send(visit, await self._shown(row, visit))

    async def _shown(self, row: Any, visit: Visit) -> Answer:
        try:
            async with asyncio.timeout(_READ_WITHIN):
                return await row.show(visit)
        except TimeoutError:
            raise PageProblem(504, "Ask for less, or try again.", kind="timeout") from None

    async def _post(self, row: Any, visit: Visit) -> None:
        most = row.most if isinstance(row, Act) else CONTROL
        form = await self._form(most)
        host = self.headers.get(b"host", b"").decode("latin-1")
        given = self.headers.get(csrf.HEADER, b"").decode("latin-1") or form.text(csrf.FIELD)
        csrf.check(self.headers, given, visit.visitor.secret, host)
        if not isinstance(row, Act):
            raise PageProblem(405, "This page only shows something.")
        done = await acts.do(row, visit, form)
        self.set_cookies += visit.set_cookies
        self.site.changed()
        await self._send(visit, done)

    async def _region(self, row: Any, visit: Visit) -> None:
        """A region of a page, computed once a second for everybody who may see the same."""
        principal = visit.principal
        key = (
            visit.namespace or "",
            f"{self.base}{self.path}?{visit.raw_query}",
            principal.role.value,
            *principal.namespaces,
            "hidden" if principal.hide_payloads else "",
        )

        async def compute() -> bytes:
            page = await self._shown(row, visit)
            if isinstance(page, PageAnswer):
                body = render_block(visit, page, f"region_{visit.region}")
                if body is not None:
                    return body
            raise not_found("The page has no such region.")

        body = await self.site.regions.of(key, compute)
        found = etag(body)
        headers = {
            "etag": found,
            "cache-control": "private, no-cache",
            "x-ff-now": _millis(visit),
            inbox.HEADER: await inbox.waiting(visit),
        }
        status = 304 if self.headers.get(b"if-none-match", b"").decode("latin-1") == found else 200
        data = b"" if status == 304 else body
        await self._raw(Raw(data=data, media=HTML, headers=headers, status=status))

    # Who looks.

    def _bound(self, visitor: Visitor) -> Visitor:
        """The visitor with a cookie to which forms are bound."""
        if visitor.secret is not None:
            return visitor
        secret = secrets.token_urlsafe(32)
        self.set_cookies.append(cookie(PAGE, secret, secure=self.secure))
        return Visitor(principal=visitor.principal, session=visitor.session, secret=secret)

    async def _login(self, method: str, visitor: Visitor | None) -> None:
        form = await self._form(CONTROL) if method == "POST" else None
        host = self.headers.get(b"host", b"").decode("latin-1")
        reply = await login.login(self.site, self.scope, self.cookies, self.headers, form, host)
        self.set_cookies += reply.cookies
        if reply.to is not None:
            await self._redirect(Redirect(to=self.base + reply.to))
        else:
            await self._raw(Raw(data=reply.body, media=HTML, status=reply.status))

    async def _answered(self, method: str) -> None:
        """The page of a link: the holder of the link may answer, without a login."""
        body = b""
        if method == "POST":
            limit = BodyLimit("answer", CONTROL)
            body = await read_body(self.receive, self.headers, limit, self.scope["path"])
        address = (self.scope.get("client") or ("", 0))[0]
        host = self.headers.get(b"host", b"").decode("latin-1")
        csrf.check_origin(self.headers, host, needed=method == "POST")
        await self._raw(
            await answer_page.answer_page(
                self.site, self.base, self.path, body, method=method, address=address
            )
        )

    async def _nobody(self, method: str) -> None:
        """Nobody is logged in: once around for links from elsewhere, then the login page."""
        if any(each in self.headers for each in _SCRIPTED) or self.path == "/live":
            raise PageProblem(401, "The session has ended: reload the page to log in.")
        if not self.site.access.has_login:
            raise PageProblem(401, "The application around this page knows nobody.")
        if method == "GET" and self.headers.get(b"sec-fetch-site") == b"cross-site":
            # The strict cookie does not come along from another site; it does after a refresh.
            await self._raw(Raw(data=render_bare("refresh.html", {}), media=HTML))
            return
        query = self.scope["query_string"].decode("latin-1")
        target = self.path + (f"?{query}" if query else "")
        await self._redirect(Redirect(to=f"{self.base}/login?next={quote(target, safe='')}"))

    async def _form(self, most: int) -> SentForm:
        try:
            body = await read_body(
                self.receive, self.headers, BodyLimit("form", most), self.scope["path"]
            )
        except RequestProblem as error:
            raise PageProblem(error.status, error.detail, kind=error.kind) from None
        try:
            pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict")
        except (UnicodeDecodeError, ValueError):
            raise PageProblem(400, "The form is not UTF-8.") from None
        return SentForm(pairs)

    # Sending.

    async def _send(self, visit: Visit, answer: Answer) -> None:
        match answer:
            case PageAnswer():
                toast = self.cookies.get(TOAST, "")
                if toast:
                    self.set_cookies.append(cookie(TOAST, "", secure=self.secure, seconds=0))
                around = await inbox.shell(visit)
                body = render_page(visit, answer, toast=unquote(toast), **around)
                headers = {"cache-control": "no-store"}
                await self._raw(Raw(data=body, media=HTML, status=answer.status, headers=headers))
            case Redirect():
                await self._redirect(answer)
            case Raw():
                await self._raw(answer)
            case Streamed():
                self.sent = True
                await send_pieces(
                    self.send,
                    answer,
                    request_id=self.request_id,
                    cookies=self.set_cookies,
                    bare=self.scope["method"] == "HEAD",
                )

    async def _redirect(self, answer: Redirect) -> None:
        if answer.toast:
            value = quote(answer.toast[:500], safe="")
            self.set_cookies.append(cookie(TOAST, value, secure=self.secure, seconds=30))
        headers = {"location": answer.to, "cache-control": "no-store"}
        await self._raw(Raw(data=b"", media=HTML, status=303, headers=headers))

    async def _raw(self, answer: Raw) -> None:
        self.sent = True
        if self.scope["method"] == "HEAD":
            answer = msgspec.structs.replace(answer, data=b"")
        await send_raw(
            self.send,
            answer,
            request_id=self.request_id,
            cookies=self.set_cookies,
            accepts=self.headers.get(b"accept-encoding", b""),
        )

    async def _problem(self, error: Exception) -> None:
        """A page that says what is wrong, with the navigation if it is known who looks."""
        if self.sent:
            return
        status, kind, detail = _described(error, self.request_id)
        title = error.title if isinstance(error, PageProblem) else title_of(status)
        values = {"status": status, "kind": kind, "detail": detail, "request_id": self.request_id}
        if any(each in self.headers for each in _SCRIPTED):
            text = f"{title}: {detail}"
            if acts.FRAGMENT in self.headers:  # shown as a toast, which stays until it is closed
                text = f"{text} ({kind}, {self.request_id})"
            body = text.encode()
            await self._raw(Raw(data=body, media="text/plain; charset=utf-8", status=status))
            return
        if self.visit is not None:
            page = PageAnswer(template="problem.html", title=title, values=values, status=status)
            await self._send(self.visit, page)
            return
        name = "app.css"
        css = self.base + self.site.assets.path(name)
        body = render_bare("bare_problem.html", {**values, "title": title, "css": css})
        headers = {"retry-after": "5"} if status == 503 else {}
        await self._raw(Raw(data=body, media=HTML, status=status, headers=headers))


def _millis(visit: Visit) -> str:
    return str(round(visit.now.timestamp() * 1000))


def _described(error: Exception, request_id: str) -> tuple[int, str, str]:
    """Status, kind and text of what went wrong."""
    match error:
        case PageProblem():
            return error.status, error.kind, error.detail
        case RequestProblem():
            return error.status, error.kind, error.detail
        case TransportError():
            return 503, error.code, "The page is loaded again every 5 seconds."
        case FlowFabricError():
            return status_of(error), error.code, str(error)
        case _:
            return 500, "internal", f"The log of the server has more: {request_id}"


async def _lifespan(site: Site, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await site.close()
    await send({"type": "lifespan.shutdown.complete"})


def mounting(services: Services) -> Mapping[str, Mounted]:
    """The dashboard of a server at `/ui`; nothing if `FF_DASHBOARD` leaves it out.

    The tokens of the server log people in, and its drain ends live pages.
    """
    if not is_wanted():
        return {}
    access = Access(services.engine, services.authenticator, None)
    site = Site(
        services.engine,
        access,
        settings=DashboardSettings(),
        server=services.settings,
        draining=services.draining,
        callbacks=services.callbacks if services.settings.callbacks else None,
    )
    return {"/ui": Dashboard(site)}


def app(
    engine: Engine, *, principal: PrincipalOf, draining: asyncio.Event | None = None
) -> Dashboard:
    """The dashboard inside another application, which says who looks.

    `principal` takes the ASGI scope and gives a `Principal`, or None for nobody; it may be a
    coroutine function. `draining` ends live pages when the application stops.
    """
    access = Access(engine, None, principal)
    site = Site(
        engine,
        access,
        settings=DashboardSettings(),
        server=None,
        draining=draining or asyncio.Event(),
    )
    return Dashboard(site)
