"""What the holder of a token may do, by the hash of the token."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.states.access import Role

FIND_TOKEN: Final[LiteralString] = """
-- access.find_token
WITH valid AS (       -- neither expired nor revoked
    SELECT token_id, label, role, namespaces, hide_payloads, last_used_at_ms
      FROM ff.api_token
     WHERE token_hash = %(token_hash)s AND revoked_at_ms IS NULL
       AND (expires_at_ms IS NULL OR expires_at_ms > ff.now_ms())
), noted AS (         -- once a minute, so that reads of a busy token write nothing
    UPDATE ff.api_token t SET last_used_at_ms = ff.now_ms()
      FROM valid WHERE t.token_id = valid.token_id
       AND coalesce(valid.last_used_at_ms, 0) < ff.now_ms() - 60000
)
SELECT token_id, label, role, namespaces, hide_payloads FROM valid
"""  # noqa: S105  SQL


class StoredToken(msgspec.Struct, frozen=True):
    """A token that is valid now."""

    token_id: UUID
    label: str
    role: Role
    namespaces: list[str]
    hide_payloads: bool


class _Row(msgspec.Struct, frozen=True):
    token_id: UUID
    label: str
    role: str
    namespaces: list[str]
    hide_payloads: bool


async def find_token(conn: Connection, token_hash: bytes) -> StoredToken | None:
    """The valid token with this SHA-256, and note that it was used; None if there is none."""
    row = await fetch_maybe(conn, FIND_TOKEN, _Row, token_hash=token_hash)
    if row is None:
        return None
    return StoredToken(row.token_id, row.label, Role(row.role), row.namespaces, row.hide_payloads)
