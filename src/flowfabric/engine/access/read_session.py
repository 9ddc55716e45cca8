"""Who a session of a browser belongs to; a session that is used stays open."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.access.find_token import StoredToken
from flowfabric.engine.access.open_session import IDLE
from flowfabric.engine.access.secret import digest
from flowfabric.instants import instant
from flowfabric.policy import milliseconds
from flowfabric.states.access import Role

READ_SESSION: Final[LiteralString] = """
-- access.read_session
WITH open AS (        -- and its token, if that is a stored one
    SELECT s.session_id, s.token_hash, s.opened_at_ms, s.last_seen_at_ms, s.expires_at_ms,
           s.ends_at_ms, t.token_id, t.label, t.role, t.namespaces, t.hide_payloads
      FROM ff.web_session s LEFT JOIN ff.api_token t USING (token_hash)
     WHERE s.session_hash = %(session_hash)s AND s.expires_at_ms > ff.now_ms()
       AND t.revoked_at_ms IS NULL
       AND (t.expires_at_ms IS NULL OR t.expires_at_ms > ff.now_ms())
), noted AS (         -- once a minute, so that a busy session writes little
    UPDATE ff.web_session s
       SET last_seen_at_ms = ff.now_ms(),
           expires_at_ms = least(ff.now_ms() + %(idle_ms)s::bigint, s.ends_at_ms)
      FROM open WHERE s.session_id = open.session_id
       AND open.last_seen_at_ms < ff.now_ms() - 60000
 RETURNING s.expires_at_ms
)
SELECT session_id, token_hash, opened_at_ms, ends_at_ms, token_id, label, role, namespaces,
       hide_payloads, coalesce((SELECT expires_at_ms FROM noted), expires_at_ms) AS expires_at_ms
  FROM open
"""


class WebSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that is open now."""

    session_id: UUID
    token_hash: bytes
    """SHA-256 of the token that it was opened with."""
    token: StoredToken | None
    """That token, valid now; None for one of `FF_API_TOKEN`, which the server has to check."""
    opened_at: datetime
    expires_at: datetime
    """To the minute: each use moves it ahead, up to `ends_at`."""
    ends_at: datetime


class _Row(msgspec.Struct, frozen=True):
    session_id: UUID
    token_hash: bytes
    opened_at_ms: int
    ends_at_ms: int
    token_id: UUID | None
    label: str | None
    role: str | None
    namespaces: list[str] | None
    hide_payloads: bool | None
    expires_at_ms: int


async def read_session(conn: Connection, secret: str) -> WebSession | None:
    """The open session with this secret, and note that it was used.

    None if there is none: it was never opened, is closed, was not used for 12 hours, is 7 days old,
    or its token is expired or revoked.
    """
    row = await fetch_maybe(
        conn,
        READ_SESSION,
        _Row,
        session_hash=digest(secret),
        idle_ms=milliseconds(IDLE),
    )
    if row is None:
        return None
    return WebSession(
        session_id=row.session_id,
        token_hash=row.token_hash,
        token=_token(row),
        opened_at=instant(row.opened_at_ms),
        expires_at=instant(row.expires_at_ms),
        ends_at=instant(row.ends_at_ms),
    )


def _token(row: _Row) -> StoredToken | None:
    if row.token_id is None:
        return None
    return StoredToken(
        row.token_id,
        row.label or "",
        Role(row.role or ""),
        row.namespaces or [],
        bool(row.hide_payloads),
    )
