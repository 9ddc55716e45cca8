"""Keys that sign grants and waitpoint tokens, and the API tokens of callers."""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from flowfabric.engine.access.create_token import TokenCreated
from flowfabric.engine.access.list_tokens import ApiToken
from flowfabric.engine.access.revoke_token import TokenRevoked
from flowfabric.engine.keys.list_waitpoint_hmac_kids import KidList
from flowfabric.engine.keys.rotate_waitpoint_hmac_secret_all import KeyRotated, KeyUnchanged
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.table import CONTROL, Route, route
from flowfabric.states import Role, Scope


class RotateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The new key; without a secret the server makes one, which is never told."""

    new_kid: str
    new_secret_hex: str | None = None
    grace: float = 3600.0
    reason: str | None = None

    def __repr__(self) -> str:
        return f"RotateRequest(new_kid={self.new_kid!r})"


class Rotated(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the keys."""

    rotation: KeyRotated | KeyUnchanged


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A token to make, which `expires_in` so many seconds."""

    label: str
    role: Role
    namespaces: list[str] = []
    """All, if none is named."""
    hide_payloads: bool = False
    expires_in: float | None = None
    reason: str | None = None


class RevokeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why."""

    reason: str | None = None


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens, without their texts."""

    items: list[ApiToken]


class WhoAmI(msgspec.Struct, frozen=True, kw_only=True):
    """The caller."""

    label: str
    role: Role
    scopes: list[Scope]
    namespaces: list[str]


async def list_waitpoint_hmac_kids(call: ApiCall) -> KidList:
    """The ids of the keys."""
    return await call.engine.list_waitpoint_hmac_kids()


async def rotate_waitpoint_hmac_secret_all(call: ApiCall, body: RotateRequest) -> Rotated:
    """Let another key sign; the one before verifies for `grace` seconds more."""
    secret = body.new_secret_hex or secrets.token_hex(32)
    found = await call.engine.rotate_waitpoint_hmac_secret_all(
        body.new_kid, secret, body.grace, actor=call.actor
    )
    return Rotated(rotation=found[0].result)


async def create_token(call: ApiCall, body: TokenRequest) -> Reply:
    """Make a token; its text is in this answer only."""
    made = await call.engine.create_token(
        body.label,
        role=body.role,
        namespaces=body.namespaces or ["*"],
        hide_payloads=body.hide_payloads,
        expires_in=body.expires_in,
        actor=call.actor,
    )
    return Reply(value=made, headers={"cache-control": "no-store"})


async def list_tokens(call: ApiCall) -> Tokens:
    """The tokens, the newest first."""
    return Tokens(items=await call.engine.list_tokens())


async def revoke_token(call: ApiCall, query: RevokeQuery) -> TokenRevoked:
    """Revoke a token; servers notice within 10 seconds."""
    return await call.engine.revoke_token(call.uuid("token_id"), actor=call.actor)


async def whoami(call: ApiCall) -> WhoAmI:
    """Who the caller is, and what it may do."""
    principal = call.principal
    return WhoAmI(
        label=principal.label,
        role=principal.role,
        scopes=sorted(principal.scopes),
        namespaces=list(principal.namespaces),
    )


def _admin(method: str, path: str, handler: Any, answers: Any, **more: Any) -> Route:
    return route(method, path, handler, scope=Scope.ADMIN, answers=answers, **more)


ROUTES: Final[tuple[Route, ...]] = (
    _admin("GET", "/v1/keys", list_waitpoint_hmac_kids, {200: KidList}),
    _admin(
        "POST",
        "/v1/keys/rotate",
        rotate_waitpoint_hmac_secret_all,
        {200: Rotated},
        limit=CONTROL,
        body=RotateRequest,
    ),
    _admin("GET", "/v1/tokens", list_tokens, {200: Tokens}),
    _admin(
        "POST", "/v1/tokens", create_token, {201: TokenCreated}, limit=CONTROL, body=TokenRequest
    ),
    _admin("DELETE", "/v1/tokens/{token_id}", revoke_token, {200: TokenRevoked}, query=RevokeQuery),
    route("GET", "/v1/whoami", whoami, scope=Scope.ANY, answers={200: WhoAmI}),
)
