"""The API tokens: what is known of each, without the token."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.instants import instant
from flowfabric.states.access import Role

LIST_TOKENS: Final[LiteralString] = """
-- access.list_tokens
SELECT token_id, label, role, namespaces, hide_payloads, created_by, created_at_ms, expires_at_ms,
       last_used_at_ms, revoked_at_ms, revoked_by
  FROM ff.api_token ORDER BY token_id DESC LIMIT 1000
"""


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token, valid or not any more; `last_used_at` is exact to the minute."""

    token_id: UUID
    label: str
    role: Role
    namespaces: list[str]
    hide_payloads: bool
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


class _Row(msgspec.Struct, frozen=True):
    token_id: UUID
    label: str
    role: str
    namespaces: list[str]
    hide_payloads: bool
    created_by: str
    created_at_ms: int
    expires_at_ms: int | None
    last_used_at_ms: int | None
    revoked_at_ms: int | None
    revoked_by: str | None


async def list_tokens(conn: Connection) -> list[ApiToken]:
    """The newest 1,000 tokens, the newest first."""
    return [
        ApiToken(
            token_id=row.token_id,
            label=row.label,
            role=Role(row.role),
            namespaces=row.namespaces,
            hide_payloads=row.hide_payloads,
            created_by=row.created_by,
            created_at=instant(row.created_at_ms),
            expires_at=instant(row.expires_at_ms),
            last_used_at=instant(row.last_used_at_ms),
            revoked_at=instant(row.revoked_at_ms),
            revoked_by=row.revoked_by,
        )
        for row in await fetch_all(conn, LIST_TOKENS, _Row)
    ]
