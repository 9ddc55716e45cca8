"""Is there a token at all? Without one, a server is for this machine only."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one

HAS_TOKENS: Final[LiteralString] = """
-- access.has_tokens
SELECT EXISTS (SELECT FROM ff.api_token WHERE revoked_at_ms IS NULL) AS found
"""


class _Row(msgspec.Struct, frozen=True):
    found: bool


async def has_tokens(conn: Connection) -> bool:
    """Is there a token that was not revoked? An expired one counts: nobody else is let in."""
    return (await fetch_one(conn, HAS_TOKENS, _Row)).found
