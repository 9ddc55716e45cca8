"""A session of a browser is over: its secret opens nothing any more."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_one

CLOSE_SESSION: Final[LiteralString] = """
-- access.close_session
WITH closed AS (
    DELETE FROM ff.web_session
     WHERE session_id = %(session_id)s AND token_hash = %(token_hash)s
 RETURNING session_id
)
SELECT count(*) > 0 AS found FROM closed
"""


class _Row(msgspec.Struct, frozen=True):
    found: bool


async def close_session(conn: Connection, session_id: UUID, *, token_hash: bytes) -> bool:
    """Close the session if it belongs to the token with this SHA-256; was there one?"""
    closed = await fetch_one(
        conn, CLOSE_SESSION, _Row, session_id=session_id, token_hash=token_hash
    )
    return closed.found
