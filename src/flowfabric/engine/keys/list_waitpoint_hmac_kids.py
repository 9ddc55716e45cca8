"""The ids of the keys: the one that signs, and those that still verify."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.instants import instant

LIST_KIDS: Final[LiteralString] = """
-- keys.list_waitpoint_hmac_kids
SELECT kid, expires_at_ms FROM ff.waitpoint_hmac
 WHERE active OR expires_at_ms >= ff.now_ms()
 ORDER BY expires_at_ms, kid
"""


class VerifyingKid(msgspec.Struct, frozen=True, kw_only=True):
    """A retired key; its signatures are valid until `expires_at`, inclusive."""

    kid: str
    expires_at: datetime


class KidList(msgspec.Struct, frozen=True, kw_only=True):
    """The key that signs, and the retired ones in the order in which their grace ends."""

    current_kid: str | None
    verifying: list[VerifyingKid]


class _Row(msgspec.Struct, frozen=True):
    kid: str
    expires_at_ms: int | None


async def list_waitpoint_hmac_kids(conn: Connection) -> KidList:
    """The ids of the keys that sign or verify."""
    rows = await fetch_all(conn, LIST_KIDS, _Row)
    return KidList(
        current_kid=next((row.kid for row in rows if row.expires_at_ms is None), None),
        verifying=[
            VerifyingKid(kid=row.kid, expires_at=instant(row.expires_at_ms))
            for row in rows
            if row.expires_at_ms is not None
        ],
    )
