"""A new session of a browser: its secret is told once, and its hash is stored."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.access.secret import digest
from flowfabric.errors import invalid_input
from flowfabric.ids import new_uuid
from flowfabric.instants import instant
from flowfabric.policy import milliseconds

IDLE: Final = 12 * 3600.0
"""Seconds after which a session that is not used has ended."""
LIFETIME: Final = 7 * 86400.0
"""Seconds after which a session has ended, however much it is used."""
_LONGEST: Final = 200

OPEN_SESSION: Final[LiteralString] = """
-- access.open_session
INSERT INTO ff.web_session (session_id, session_hash, token_hash, address, user_agent,
                            opened_at_ms, last_seen_at_ms, expires_at_ms, ends_at_ms)
VALUES (%(session_id)s, %(session_hash)s, %(token_hash)s, %(address)s, %(user_agent)s,
        ff.now_ms(), ff.now_ms(), ff.now_ms() + %(idle_ms)s::bigint,
        ff.now_ms() + %(lifetime_ms)s::bigint)
RETURNING expires_at_ms, ends_at_ms
"""


class SessionOpened(msgspec.Struct, frozen=True, kw_only=True):
    """The session is open. Its secret is what the cookie holds; it cannot be read again."""

    session_id: UUID
    secret: str
    expires_at: datetime
    """Each use moves it ahead, up to `ends_at`."""
    ends_at: datetime

    def __repr__(self) -> str:
        return f"SessionOpened(session_id={self.session_id})"


class _Row(msgspec.Struct, frozen=True):
    expires_at_ms: int
    ends_at_ms: int


async def open_session(
    conn: Connection, token_hash: bytes, *, address: str = "", user_agent: str = ""
) -> SessionOpened:
    """Open a session for the holder of the token with this SHA-256.

    Whether the token is valid is for the caller to check, now and whenever the session is read.
    `address` and `user_agent` are for people who look at their sessions; they are cut after 200
    characters. Raises `ValidationError(invalid_input)` for what is no SHA-256.
    """
    if len(token_hash) != len(digest("")):
        raise invalid_input("token_hash", len(token_hash), "must be a SHA-256 of 32 bytes")
    secret, session_id = secrets.token_urlsafe(32), new_uuid()
    stored = await fetch_one(
        conn,
        OPEN_SESSION,
        _Row,
        session_id=session_id,
        session_hash=digest(secret),
        token_hash=token_hash,
        address=_shown(address),
        user_agent=_shown(user_agent),
        idle_ms=milliseconds(IDLE),
        lifetime_ms=milliseconds(LIFETIME),
    )
    return SessionOpened(
        session_id=session_id,
        secret=secret,
        expires_at=instant(stored.expires_at_ms),
        ends_at=instant(stored.ends_at_ms),
    )


def _shown(text: str) -> str:
    """The text as Postgres can store it, cut to a length that is shown."""
    return "".join(each for each in text if each.isprintable())[:_LONGEST]
