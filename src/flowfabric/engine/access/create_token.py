"""A new API token: its text is told once, and its hash is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.access.secret import digest, new_secret
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import invalid_input
from flowfabric.ids import check_list, check_name, new_uuid
from flowfabric.instants import instant
from flowfabric.policy import milliseconds
from flowfabric.states import OperatorEventType
from flowfabric.states.access import Role

ALL_NAMESPACES: Final = "*"

CREATE_TOKEN: Final[LiteralString] = """
-- access.create_token
INSERT INTO ff.api_token (token_id, token_hash, label, role, namespaces, hide_payloads, created_by,
                          created_at_ms, expires_at_ms)
VALUES (%(token_id)s, %(token_hash)s, %(label)s, %(role)s, %(namespaces)s::text[],
        %(hide_payloads)s, %(created_by)s, ff.now_ms(), ff.now_ms() + %(lifetime_ms)s::bigint)
RETURNING expires_at_ms
"""  # noqa: S105  SQL


class TokenCreated(msgspec.Struct, frozen=True, kw_only=True):
    """The token is valid from now on. Its text cannot be read again."""

    token_id: UUID
    token: str
    label: str
    role: Role
    namespaces: list[str]
    expires_at: datetime | None

    def __repr__(self) -> str:
        return f"TokenCreated(token_id={self.token_id}, label={self.label!r})"


class _Row(msgspec.Struct, frozen=True):
    expires_at_ms: int | None


async def create_token(
    conn: Connection,
    label: str,
    *,
    role: Role | str,
    namespaces: Sequence[str] = (ALL_NAMESPACES,),
    hide_payloads: bool = False,
    expires_in: float | timedelta | None = None,
    actor: str = DEFAULT_ACTOR,
) -> TokenCreated:
    """Make a token for one role in these namespaces; `*` stands for all of them.

    An operator event tells of it. Needs a transaction. Raises `ValidationError(invalid_input)` for
    a label, role, namespace or lifetime that is not valid.
    """
    check_name(label, field="label")
    check_actor(actor)
    if role not in set(Role):
        raise invalid_input("role", str(role), f"must be one of {', '.join(Role)}")
    named = [check_name(each, field="namespaces") for each in check_list(namespaces, field="names")]
    if not named:
        raise invalid_input("namespaces", None, "must name at least one, or * for all")
    lifetime = None if expires_in is None else milliseconds(expires_in, field="expires_in")
    if lifetime is not None and lifetime < 1:
        raise invalid_input("expires_in", expires_in, "must be positive")
    token, token_id = new_secret(), new_uuid()
    stored = await fetch_one(
        conn,
        CREATE_TOKEN,
        _Row,
        token_id=token_id,
        token_hash=digest(token),
        label=label,
        role=Role(role).value,
        namespaces=named,
        hide_payloads=hide_payloads,
        created_by=actor,
        lifetime_ms=lifetime,
    )
    await operator_event(
        conn,
        OperatorEventType.TOKEN_CREATED,
        actor=actor,
        reason=None,
        token_id=str(token_id),
        label=label,
        role=Role(role).value,
        namespaces=named,
    )
    return TokenCreated(
        token_id=token_id,
        token=token,
        label=label,
        role=Role(role),
        namespaces=named,
        expires_at=instant(stored.expires_at_ms),
    )
