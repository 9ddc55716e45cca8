"""The stored grants of one execution; the caller holds the lock of its row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, LiteralString, NotRequired, TypedDict

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_maybe
from flowfabric.engine.grants.grant import GrantKey, grant_id, signed
from flowfabric.engine.keys.key import Key, active_key
from flowfabric.errors import (
    ClaimGrantExpired,
    GrantAlreadyExists,
    InvalidClaimGrant,
    Unavailable,
    ValidationError,
    invalid_input,
)
from flowfabric.ids import ExecutionId, check_lane, check_text, check_worker_name, storable_text
from flowfabric.policy import check_capabilities, milliseconds
from flowfabric.states import GrantKind

MAX_TTL: Final = 60.0
DEFAULT_TTL: Final = 5.0

STORE_GRANT: Final[LiteralString] = """
-- grants.store_grant
INSERT INTO ff.claim_grant (
       partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, lane_id,
       worker_capabilities, capability_hash, route_snapshot_json, admission_summary, grant_ttl_ms,
       issued_at_ms, expires_at_ms, lease_epoch)
SELECT %(partition_key)s, %(grant_id)s, %(execution_id)s, %(kind)s, %(worker_id)s,
       %(worker_instance_id)s, %(lane_id)s, %(worker_capabilities)s::text[], %(capability_hash)s,
       %(route_snapshot_json)s::jsonb, %(admission_summary)s, %(grant_ttl_ms)s::bigint,
       %(issued_at_ms)s::bigint, %(issued_at_ms)s::bigint + %(grant_ttl_ms)s::bigint,
       %(lease_epoch)s::bigint
 WHERE NOT EXISTS (SELECT FROM ff.unused_grant
                    WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
                      AND expires_at_ms > %(issued_at_ms)s::bigint)
RETURNING expires_at_ms
"""

# A grant is issued only once the one before has expired or was used up, so only the latest can be
# valid.
LATEST_GRANT: Final[LiteralString] = """
-- grants.latest_grant
SELECT g.kind, g.worker_id, g.expires_at_ms <= ff.now_ms() AS expired,
       NOT EXISTS (SELECT FROM ff.unused_grant u
                    WHERE (u.partition_key, u.grant_id) = (g.partition_key, g.grant_id)) AS used_up
  FROM ff.claim_grant g
 WHERE (g.partition_key, g.execution_id) = (%(partition_key)s, %(execution_id)s)
   AND (%(kind)s::text IS NULL OR g.kind = %(kind)s::text)
 ORDER BY g.issued_at_ms DESC, g.lease_epoch DESC LIMIT 1
"""

DELETE_GRANTS: Final[LiteralString] = """
-- grants.delete_grants
DELETE FROM ff.claim_grant
 WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
"""


class GrantTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The worker of a grant, its time to live, and what the scheduler notes; checked when made."""

    worker_id: str
    worker_instance_id: str
    lane_id: str
    worker_capabilities: Sequence[str] = ()
    grant_ttl: float | timedelta = DEFAULT_TTL
    capability_hash: str | None = None
    route_snapshot_json: str | None = None
    admission_summary: str | None = None

    def __post_init__(self) -> None:
        check_capabilities(self.worker_capabilities, side="worker")
        check_worker_name(self.worker_id, field="worker_id")
        check_worker_name(self.worker_instance_id, field="worker_instance_id")
        check_lane(self.lane_id)
        if not 1 <= self.grant_ttl_ms <= MAX_TTL * 1000:
            raise invalid_input("grant_ttl", self.grant_ttl, f"must be 0.001 to {MAX_TTL:g} s")
        if self.capability_hash is not None:
            check_text(self.capability_hash, field="capability_hash")
        if self.admission_summary is not None:
            storable_text(self.admission_summary, field="admission_summary")
        if self.route_snapshot_json is not None:
            _check_json(self.route_snapshot_json, field="route_snapshot_json")

    @property
    def grant_ttl_ms(self) -> int:
        return milliseconds(self.grant_ttl, field="grant_ttl")


class GrantArguments(TypedDict):
    """The fields of `GrantTerms`, as the arguments of the operations that issue one grant."""

    worker_id: str
    worker_instance_id: str
    lane_id: str
    worker_capabilities: NotRequired[Sequence[str]]
    grant_ttl: NotRequired[float | timedelta]
    capability_hash: NotRequired[str | None]
    route_snapshot_json: NotRequired[str | None]
    admission_summary: NotRequired[str | None]


class StoredGrant(msgspec.Struct, frozen=True):
    """The worker of the latest grant, and whether the grant has expired or was used up."""

    kind: str
    worker_id: str
    expired: bool = False
    used_up: bool = False

    @property
    def live(self) -> bool:
        return not (self.expired or self.used_up)


class _Stored(msgspec.Struct, frozen=True):
    expires_at_ms: int


async def signing_key(conn: Connection, operation: str) -> Key:
    """The key that signs; raises `Unavailable` if there is none."""
    key = await active_key(conn)
    if key is None:
        raise Unavailable(operation, "no grant can be signed: keystore empty")
    return key


async def store_grant(
    conn: Connection,
    key: Key,
    kind: GrantKind,
    execution_id: ExecutionId,
    terms: GrantTerms,
    *,
    now_ms: int,
    lease_epoch: int,
) -> GrantKey | None:
    """The signed key of the stored grant; None, and nothing stored, if another grant is live.

    The grant is used up as soon as the execution has an epoch higher than `lease_epoch`.
    """
    grant_key = signed(
        key,
        kind,
        execution_id,
        worker_id=terms.worker_id,
        worker_instance_id=terms.worker_instance_id,
        expires_at_ms=now_ms + terms.grant_ttl_ms,
    )
    stored = await fetch_maybe(
        conn,
        STORE_GRANT,
        _Stored,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        grant_id=grant_id(grant_key.text),
        kind=kind.value,
        issued_at_ms=now_ms,
        lease_epoch=lease_epoch,
        grant_ttl_ms=terms.grant_ttl_ms,
        worker_id=terms.worker_id,
        worker_instance_id=terms.worker_instance_id,
        lane_id=terms.lane_id,
        worker_capabilities=sorted(set(terms.worker_capabilities)),
        capability_hash=terms.capability_hash,
        route_snapshot_json=terms.route_snapshot_json,
        admission_summary=terms.admission_summary,
    )
    return None if stored is None else grant_key


async def latest_grant(
    conn: Connection, execution_id: ExecutionId, kind: GrantKind | None = None
) -> StoredGrant | None:
    """The grant that was issued last, of that kind or of any; None if there is none."""
    return await fetch_maybe(
        conn,
        LATEST_GRANT,
        StoredGrant,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        kind=None if kind is None else kind.value,
    )


async def require_no_grant(conn: Connection, execution_id: ExecutionId) -> None:
    """Raises `GrantAlreadyExists` if a grant of the execution is live."""
    grant = await latest_grant(conn, execution_id)
    if grant is not None and grant.live:
        raise GrantAlreadyExists(execution_id)


async def has_claim_grant(conn: Connection, execution_id: ExecutionId) -> bool:
    """Is a claim of the execution granted to a worker, by a grant that is not used up?"""
    grant = await latest_grant(conn, execution_id, GrantKind.CLAIM)
    return grant is not None and not grant.used_up


async def require_claim_grant(
    conn: Connection, execution_id: ExecutionId, *, worker_id: str
) -> None:
    """Raises `InvalidClaimGrant` or `ClaimGrantExpired` unless the worker has a claim grant."""
    grant = await latest_grant(conn, execution_id, GrantKind.CLAIM)
    if grant is None or grant.used_up or grant.worker_id != worker_id:
        raise InvalidClaimGrant(execution_id, worker_id)
    if grant.expired:
        raise ClaimGrantExpired(execution_id)


async def delete_grants(conn: Connection, execution_id: ExecutionId) -> None:
    """The execution has no grants."""
    await execute(
        conn,
        DELETE_GRANTS,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )


def _check_json(text: str, *, field: str) -> None:
    storable_text(text, field=field)
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValidationError("invalid_input", f"{field} is not JSON: {error}") from None
