"""Who looks at the dashboard: by a session cookie, by the host application, or `local`."""

from __future__ import annotations

import hashlib
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final, TypeAlias

import msgspec

from flowfabric.audit import audit_now
from flowfabric.dashboard.problems import PageProblem
from flowfabric.engine.access.read_session import WebSession
from flowfabric.engine.engine import Engine
from flowfabric.server.access.authenticate import Authenticator
from flowfabric.server.access.principal import LOCAL, Principal
from flowfabric.server.problems import RequestProblem
from flowfabric.states import Role

SESSION: Final = "ff_session"
SECURE_SESSION: Final = "__Host-ff_session"
PAGE: Final = "ff_page"
"""The cookie to which forms are bound where there is no session."""
KEPT: Final = 10.0
"""Seconds for which a session is not read again."""
_A_MINUTE: Final = 60.0
_MOST_TRIES: Final = 5
_LONGEST_SESSION: Final = 7 * 86400
_MOST_KEPT: Final = 10_000

PrincipalOf: TypeAlias = Callable[[Mapping[str, Any]], Principal | Awaitable[Any] | None]
"""Names the principal of a request from its ASGI scope; None if nobody is logged in."""


class Visitor(msgspec.Struct, frozen=True, kw_only=True):
    """Who looks, and the session if there is one."""

    principal: Principal
    session: WebSession | None = None
    secret: str | None = None
    """What forms are bound to; None if the browser has no cookie yet."""


class LoginTries:
    """How often each address has tried to log in during the last minute."""

    def __init__(self) -> None:
        self._tries: dict[str, deque[float]] = {}

    def count(self, address: str) -> None:
        """One more try; raises a `PageProblem` if it is one too many."""
        now = time.monotonic()
        if len(self._tries) >= _MOST_KEPT:
            self._tries.clear()
        tries = self._tries.setdefault(address, deque())
        while tries and now - tries[0] > _A_MINUTE:
            tries.popleft()
        if len(tries) >= _MOST_TRIES:
            raise PageProblem(429, "Wait a minute before you try again.", kind="too_many_requests")
        tries.append(now)


class Access:
    """Finds out who looks. Sessions are rows of the database, so any process serves them."""

    def __init__(
        self,
        engine: Engine,
        authenticator: Authenticator | None,
        principal_of: PrincipalOf | None,
    ) -> None:
        self._engine, self._authenticator, self._principal_of = engine, authenticator, principal_of
        self._kept: dict[str, tuple[float, WebSession | None]] = {}
        self.tries = LoginTries()

    @property
    def has_login(self) -> bool:
        """Do people log in here, and not in the application around it?"""
        return self._principal_of is None

    async def visitor(self, scope: Mapping[str, Any], cookies: Mapping[str, str]) -> Visitor | None:
        """Who sent the request; None if that is nobody who may look."""
        page = cookies.get(PAGE)
        if self._principal_of is not None:
            found = self._principal_of(scope)
            principal: Principal | None = await found if inspect.isawaitable(found) else found
            return None if principal is None else Visitor(principal=principal, secret=page)
        assert self._authenticator is not None
        secret = cookies.get(SECURE_SESSION) or cookies.get(SESSION)
        if secret:
            session = await self._session(secret)
            if session is not None:
                principal = await self._authenticator.find(session.token_hash)
                if principal is not None and principal.role is not Role.WORKER:
                    return Visitor(principal=principal, session=session, secret=secret)
        try:
            local = await self._authenticator.principal(None)
        except RequestProblem:
            return None
        return Visitor(principal=local, secret=page)

    async def log_in(self, token: str, *, address: str, user_agent: str) -> str:
        """The secret of a new session; raises a `PageProblem`, the same for every wrong token."""
        assert self._authenticator is not None
        self.tries.count(address)
        digest = hashlib.sha256(token.strip().encode("utf-8", "replace")).digest()
        principal = await self._authenticator.find(digest)
        if principal is None or principal.role is Role.WORKER:
            audit_now("login_refused", address=address)
            raise PageProblem(401, "This token is not valid here.", kind="unauthorized")
        return await self._open_session(digest, principal.label, address, user_agent)

    async def is_first_token(self, principal: Principal) -> bool:
        """Would a token made by this person be the first, which ends access without one?"""
        if principal != LOCAL or self._authenticator is None or self._authenticator.insecure:
            return False
        return not await self._engine.has_tokens()

    async def stay(self, token: str, label: str, *, address: str, user_agent: str) -> str:
        """The secret of a session of the person who has just made this token."""
        digest = hashlib.sha256(token.encode()).digest()
        return await self._open_session(digest, label, address, user_agent)

    async def _open_session(self, digest: bytes, label: str, address: str, user_agent: str) -> str:
        opened = await self._engine.open_session(digest, address=address, user_agent=user_agent)
        audit_now("login", principal=label, address=address)
        return opened.secret

    async def log_out(self, visitor: Visitor) -> None:
        """The session has ended."""
        if visitor.session is None or visitor.secret is None:
            return
        session = visitor.session
        self._kept.pop(visitor.secret, None)
        await self._engine.close_session(session.session_id, token_hash=session.token_hash)
        audit_now("logout", principal=visitor.principal.label)

    def forget_kept(self) -> None:
        """Every session is read anew."""
        self._kept.clear()

    async def _session(self, secret: str) -> WebSession | None:
        now = time.monotonic()
        kept = self._kept.get(secret)
        if kept is not None and now - kept[0] < KEPT:
            return kept[1]
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        found = await self._engine.read_session(secret)
        self._kept[secret] = now, found
        return found


def read_cookies(header: bytes) -> dict[str, str]:
    """The cookies of a request; none if the header cannot be read."""
    try:
        return {name: each.value for name, each in SimpleCookie(header.decode("latin-1")).items()}
    except CookieError:
        return {}


def cookie(
    name: str, value: str, *, secure: bool, seconds: int | None = None, readable: bool = False
) -> str:
    """A `Set-Cookie` header; scripts see the cookie only if it is `readable`."""
    parts = [f"{name}={value}", "Path=/", "SameSite=Strict"]
    if seconds is not None:
        parts.append(f"Max-Age={seconds}")
    if not readable:
        parts.append("HttpOnly")
    if secure:
        parts.append("Secure")
    return "; ".join(parts)


def session_cookie(secret: str, *, secure: bool) -> str:
    """A `Set-Cookie` header that keeps a person logged in."""
    name = SECURE_SESSION if secure else SESSION
    return cookie(name, secret, secure=secure, seconds=_LONGEST_SESSION)
