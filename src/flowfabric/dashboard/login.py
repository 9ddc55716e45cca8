"""The login page: an API token, posted once, and a session cookie from then on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from flowfabric.dashboard import csrf
from flowfabric.dashboard.access import PAGE, cookie, session_cookie
from flowfabric.dashboard.problems import PageProblem
from flowfabric.dashboard.render import render_bare
from flowfabric.dashboard.site import Site
from flowfabric.dashboard.visit import SentForm


class LoginReply(msgspec.Struct, frozen=True, kw_only=True):
    """The page, or the path to which a person who has logged in goes on."""

    body: bytes = b""
    status: int = 200
    to: str | None = None
    cookies: list[str] = msgspec.field(default_factory=list[str])


async def login(
    site: Site,
    scope: Mapping[str, Any],
    cookies: Mapping[str, str],
    headers: Mapping[bytes, bytes],
    form: SentForm | None,
    host: str,
) -> LoginReply:
    """Show the page; with a form, try the token. Every wrong token gets the same text."""
    secure = scope.get("scheme") == "https"
    base: str = scope.get("root_path", "")
    bound = cookies.get(PAGE)
    set_cookies: list[str] = []
    if bound is None:
        bound = secrets.token_urlsafe(32)
        set_cookies.append(cookie(PAGE, bound, secure=secure))
    query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
    target = safe_target(form.text("next") if form is not None else query.get("next", ""))
    status, wrong = 200, ""
    if form is not None:
        csrf.check(headers, form.text(csrf.FIELD), cookies.get(PAGE), host)
        address = (scope.get("client") or ("", 0))[0]
        agent = headers.get(b"user-agent", b"").decode("latin-1")
        try:
            secret = await site.access.log_in(form.text("token"), address=address, user_agent=agent)
        except PageProblem as error:
            status, wrong = error.status, error.detail
        else:
            set_cookies.append(session_cookie(secret, secure=secure))
            return LoginReply(to=target, cookies=set_cookies)
    values = {
        "css": base + site.assets.path("app.css"),
        "icon": base + site.assets.path("icon.svg"),
        "action": f"{base}/login",
        "next": target,
        "wrong": wrong,
        "token": csrf.token(bound),
    }
    body = render_bare("login.html", values)
    return LoginReply(body=body, status=status, cookies=set_cookies)


def safe_target(given: str) -> str:
    """A path below the dashboard; anything else becomes its first page."""
    if not given.startswith("/") or given.startswith("//") or "\\" in given:
        return "/"
    if any(ord(each) < 33 or ord(each) > 126 for each in given):
        return "/"
    return given
