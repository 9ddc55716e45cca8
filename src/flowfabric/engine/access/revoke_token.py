"""A token is no longer valid; servers notice within 10 seconds."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import NotFound
from flowfabric.states import OperatorEventType

REVOKE_TOKEN: Final[LiteralString] = """
-- access.revoke_token
WITH seen AS (
    SELECT token_id, label, revoked_at_ms FROM ff.api_token
     WHERE token_id = %(token_id)s FOR UPDATE
), revoked AS (
    UPDATE ff.api_token t SET revoked_at_ms = ff.now_ms(), revoked_by = %(actor)s
      FROM seen WHERE t.token_id = seen.token_id AND seen.revoked_at_ms IS NULL
)
SELECT label, revoked_at_ms IS NOT NULL AS repeated FROM seen
"""  # noqa: S105  SQL


class TokenRevoked(msgspec.Struct, frozen=True, kw_only=True):
    """The token is not valid; `repeated` if it was revoked before."""

    token_id: UUID
    label: str
    repeated: bool = False


class _Row(msgspec.Struct, frozen=True):
    label: str
    repeated: bool


async def revoke_token(
    conn: Connection, token_id: UUID, *, actor: str = DEFAULT_ACTOR
) -> TokenRevoked:
    """Revoke the token, and tell so by an operator event; raises `NotFound(token)`.

    Needs a transaction. A token that was revoked before stays as it is.
    """
    check_actor(actor)
    row = await fetch_maybe(conn, REVOKE_TOKEN, _Row, token_id=token_id, actor=actor)
    if row is None:
        raise NotFound("token", token_id)
    if not row.repeated:
        await operator_event(
            conn,
            OperatorEventType.TOKEN_REVOKED,
            actor=actor,
            reason=None,
            token_id=str(token_id),
            label=row.label,
        )
    return TokenRevoked(token_id=token_id, label=row.label, repeated=row.repeated)
