"""The principal of a request: by its bearer token, or because nobody else can connect."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Final

from flowfabric.engine.access.find_token import StoredToken
from flowfabric.engine.access.secret import is_well_formed
from flowfabric.engine.engine import Engine
from flowfabric.server.access.principal import LOCAL, Principal
from flowfabric.server.problems import RequestProblem
from flowfabric.server.settings import Settings
from flowfabric.states.access import Role

KEPT: Final = 10.0
"""Seconds for which the answer of the database about a token is kept."""
_MOST_KEPT: Final = 10_000
_OF_ENVIRONMENT: Final = Principal(who="env", label="FF_API_TOKEN", role=Role.ADMIN)
CHALLENGE: Final = {"www-authenticate": "Bearer"}


class Authenticator:
    """Finds out who calls; answers of the database are kept for `KEPT` seconds."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self._kept: dict[bytes, tuple[float, Principal | None]] = {}
        self._given = [hashlib.sha256(each.encode()).digest() for each in settings.api_tokens]
        self._open: tuple[float, bool] | None = None

    @property
    def insecure(self) -> bool:
        """Is everybody an admin, whatever tokens there are?"""
        return self._settings.insecure

    def known(self, header: bytes | None) -> Principal | None:
        """The caller, if that is known without the database; else ask for its `principal`."""
        if header is None:
            return None
        scheme, _, token = header.partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        return self._known(hashlib.sha256(token.strip()).digest())

    async def principal(self, header: bytes | None) -> Principal:
        """The caller; raises a `RequestProblem` without a valid token."""
        if header is None:
            if await self._is_open():
                return LOCAL
            raise RequestProblem("unauthorized", "no token was given", headers=CHALLENGE)
        scheme, _, token = header.partition(b" ")
        found = None
        if scheme.lower() == b"bearer":
            token = token.strip()
            found = await self.find(hashlib.sha256(token).digest(), token)
        if found is None:
            why = "the token is unknown, expired or revoked"
            raise RequestProblem("unauthorized", why, headers=CHALLENGE)
        return found

    async def find(self, digest: bytes, token: bytes | None = None) -> Principal | None:
        """The caller whose token has this SHA-256; None if no valid token has.

        Given the token too, one that can never have been made is not looked up.
        """
        known = self._known(digest)
        if known is not None:
            return known
        now = time.monotonic()
        kept = self._kept.get(digest)
        if kept is not None and now - kept[0] < KEPT:
            return None
        if token is not None and not is_well_formed(token.decode("latin-1")):
            return None
        stored = await self._engine.find_token(digest)
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        found = None if stored is None else _principal(stored)
        self._kept[digest] = now, found
        return found

    def _known(self, digest: bytes) -> Principal | None:
        """The caller of a token of the environment, or of one that was found lately."""
        for each in self._given:
            if hmac.compare_digest(digest, each):
                return _OF_ENVIRONMENT
        kept = self._kept.get(digest)
        if kept is None or time.monotonic() - kept[0] >= KEPT:
            return None
        return kept[1]

    async def _is_open(self) -> bool:
        """Is everybody who can connect an admin? Only while there are no tokens at all."""
        if self._settings.api_tokens:
            return False
        if self._settings.insecure:
            return True
        if not self._settings.is_local:
            return False
        now = time.monotonic()
        if self._open is None or now - self._open[0] >= KEPT:
            self._open = now, not await self._engine.has_tokens()
        return self._open[1]


def _principal(stored: StoredToken) -> Principal:
    return Principal(
        who=str(stored.token_id),
        label=stored.label,
        role=stored.role,
        namespaces=tuple(stored.namespaces),
        hide_payloads=stored.hide_payloads,
    )
