"""Whether a grant is authentic and still valid; nothing changes."""

from __future__ import annotations

import hmac
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe, fetch_one
from flowfabric.engine.grants.grant import (
    ClaimGrant,
    GrantKey,
    ReclaimGrant,
    grant_id,
    grant_message,
)
from flowfabric.engine.keys.key import verifying_key
from flowfabric.errors import InvalidGrant
from flowfabric.ids import ExecutionId
from flowfabric.instants import epoch_ms
from flowfabric.states import GrantKind

EXPIRED: Final[LiteralString] = """
-- grants.verify_grant: has it expired
SELECT %(expires_at_ms)s::bigint <= ff.now_ms() AS expired
"""

VERIFY_GRANT: Final[LiteralString] = """
-- grants.verify_grant
SELECT g.kind, g.execution_id = %(execution_id)s AS same_execution, g.worker_id,
       g.worker_instance_id,
       NOT EXISTS (SELECT FROM ff.unused_grant u
                    WHERE (u.partition_key, u.grant_id) = (g.partition_key, g.grant_id)) AS used_up
  FROM ff.claim_grant g
 WHERE (g.partition_key, g.grant_id) = (%(partition_key)s, %(grant_id)s)
"""


class VerifiedGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A valid grant, and the worker that it was issued to."""

    execution_id: ExecutionId
    kind: GrantKind
    worker_id: str
    worker_instance_id: str


class _Expired(msgspec.Struct, frozen=True):
    expired: bool


class _Stored(msgspec.Struct, frozen=True):
    kind: str
    same_execution: bool
    worker_id: str
    worker_instance_id: str
    used_up: bool


async def verify_grant(conn: Connection, grant: ClaimGrant | ReclaimGrant) -> VerifiedGrant:
    """The worker that the grant was issued to, if the grant is valid; reads only.

    Raises `InvalidGrant` with the first code that applies: `grant_malformed`, `grant_expired`,
    `grant_unknown_kid` (the key never existed, or its grace is over), `grant_unknown` (the grant
    was never stored, was used or was deleted), `grant_signature_mismatch`.
    """
    key = GrantKey.parse(grant.grant_key)
    kind = GrantKind.RECLAIM if isinstance(grant, ReclaimGrant) else GrantKind.CLAIM
    stated = (grant.execution_id, epoch_ms(grant.expires_at), kind)
    if stated != (key.execution_id, key.expires_at_ms, key.kind):
        raise InvalidGrant("grant_malformed", "its key names another execution, time or kind")
    if (await fetch_one(conn, EXPIRED, _Expired, expires_at_ms=key.expires_at_ms)).expired:
        raise InvalidGrant("grant_expired", f"the grant for {key.execution_id} has expired")
    signer = await verifying_key(conn, key.kid)
    if signer is None:
        raise InvalidGrant("grant_unknown_kid", f"no key {key.kid!r} verifies")
    stored = await fetch_maybe(
        conn,
        VERIFY_GRANT,
        _Stored,
        partition_key=key.execution_id.partition_key,
        execution_id=key.execution_id.uuid,
        grant_id=grant_id(key.text),
    )
    if stored is None:
        raise InvalidGrant("grant_unknown", f"no such grant for {key.execution_id}")
    message = grant_message(
        GrantKind(stored.kind),
        key.execution_id,
        worker_id=stored.worker_id,
        worker_instance_id=stored.worker_instance_id,
        expires_at_ms=key.expires_at_ms,
    )
    if not (hmac.compare_digest(signer.sign(message), key.signature) and stored.same_execution):
        raise InvalidGrant(
            "grant_signature_mismatch", f"the grant for {key.execution_id} was not signed like this"
        )
    if stored.used_up:
        raise InvalidGrant("grant_unknown", f"the grant for {key.execution_id} was used")
    return VerifiedGrant(
        execution_id=key.execution_id,
        kind=key.kind,
        worker_id=stored.worker_id,
        worker_instance_id=stored.worker_instance_id,
    )
