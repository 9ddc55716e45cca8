"""Sessions that are over leave the table."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one

FORGET_SESSIONS: Final[LiteralString] = """
-- access.forget_sessions
WITH over AS (
    SELECT session_id FROM ff.web_session WHERE expires_at_ms <= ff.now_ms()
     ORDER BY expires_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM ff.web_session s USING over WHERE s.session_id = over.session_id
 RETURNING s.session_id
)
SELECT count(*) AS moved FROM forgotten
"""


class _Row(msgspec.Struct, frozen=True):
    moved: int


async def forget_sessions(conn: Connection, limit: int) -> int:
    """Delete sessions that have expired, at most `limit`."""
    return (await fetch_one(conn, FORGET_SESSIONS, _Row, limit=limit)).moved
