"""How many open waitpoints have tokens of each key: which a rotation must outlive."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.instants import instant

COUNT_WAITPOINTS_BY_KID: Final[LiteralString] = """
-- suspensions.count_waitpoints_by_kid
SELECT token_kid, count(*)::integer AS open_waitpoints,
       CASE WHEN bool_and(expires_at_ms IS NOT NULL) THEN max(expires_at_ms) END AS last_expiry_ms
  FROM ff.waitpoint_pending WHERE state <> 'closed'
 GROUP BY token_kid ORDER BY token_kid
"""


class KidUse(msgspec.Struct, frozen=True, kw_only=True):
    """The open waitpoints whose tokens one key has signed."""

    kid: str
    open_waitpoints: int
    last_expiry: datetime | None
    """When the last of them expires; None: one of them never does."""


class _Row(msgspec.Struct, frozen=True):
    token_kid: str
    open_waitpoints: int
    last_expiry_ms: int | None


async def count_waitpoints_by_kid(conn: Connection) -> list[KidUse]:
    """Every key that an open waitpoint needs, by its id."""
    return [
        KidUse(
            kid=row.token_kid,
            open_waitpoints=row.open_waitpoints,
            last_expiry=instant(row.last_expiry_ms),
        )
        for row in await fetch_all(conn, COUNT_WAITPOINTS_BY_KID, _Row)
    ]
