"""The open sessions of the holder of one token."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.instants import instant

LIST_SESSIONS: Final[LiteralString] = """
-- access.list_sessions
SELECT session_id, address, user_agent, opened_at_ms, last_seen_at_ms, expires_at_ms
  FROM ff.web_session
 WHERE token_hash = %(token_hash)s AND expires_at_ms > ff.now_ms()
 ORDER BY session_id DESC LIMIT 100
"""


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as people see it; `last_seen_at` is exact to the minute."""

    session_id: UUID
    address: str
    user_agent: str
    opened_at: datetime
    last_seen_at: datetime
    expires_at: datetime


class _Row(msgspec.Struct, frozen=True):
    session_id: UUID
    address: str
    user_agent: str
    opened_at_ms: int
    last_seen_at_ms: int
    expires_at_ms: int


async def list_sessions(conn: Connection, token_hash: bytes) -> list[OpenSession]:
    """The newest 100 open sessions of the token with this SHA-256, the newest first."""
    return [
        OpenSession(
            session_id=row.session_id,
            address=row.address,
            user_agent=row.user_agent,
            opened_at=instant(row.opened_at_ms),
            last_seen_at=instant(row.last_seen_at_ms),
            expires_at=instant(row.expires_at_ms),
        )
        for row in await fetch_all(conn, LIST_SESSIONS, _Row, token_hash=token_hash)
    ]
