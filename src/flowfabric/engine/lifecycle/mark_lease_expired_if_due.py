"""active → runnable or terminal(failed): the lease of one execution is voided if it expired."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.sql.expire_lease import expire_lease
from flowfabric.engine.lifecycle.sql.fence import LOCKED_COLUMNS
from flowfabric.ids import ExecutionId
from flowfabric.states import LifecyclePhase, OwnershipState, PublicState

MARK_LEASE_EXPIRED: Final[LiteralString] = (
    f"""
-- lifecycle.mark_lease_expired_if_due
WITH named AS (       -- the row, locked
    SELECT{LOCKED_COLUMNS}, e.ownership_state,
           coalesce(e.lease_expires_at_ms <= ff.now_ms(), false) AS is_expired,
           %(max_reclaim_count)s::integer AS given_cap
      FROM ff.exec_core e
     WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
       FOR NO KEY UPDATE
), seen AS (
    SELECT * FROM named WHERE leased AND is_expired
)"""
    + expire_lease("seen")
    + """
SELECT named.lifecycle_phase, named.ownership_state, named.is_expired,
       EXISTS (SELECT FROM ended) AS ended, EXISTS (SELECT FROM requeued) AS requeued
  FROM named
"""
)


class NotExpiredReason(StrEnum):
    """Why no lease was voided."""

    EXECUTION_NOT_FOUND = "execution_not_found"
    NOT_ACTIVE = "not_active"
    UNOWNED = "unowned"
    NOT_YET_EXPIRED = "not_yet_expired"


class LeaseMarkedExpired(msgspec.Struct, frozen=True, kw_only=True):
    """The lease is void: the execution waits, or has failed because of its cap."""

    execution_id: ExecutionId
    public_state: PublicState


class LeaseNotExpired(msgspec.Struct, frozen=True, kw_only=True):
    """No lease of the execution had expired; nothing was written."""

    execution_id: ExecutionId
    reason: NotExpiredReason


class SeenLease(msgspec.Struct, frozen=True):
    """The execution as it was when it was locked, and what became of it."""

    lifecycle_phase: str
    ownership_state: str
    is_expired: bool
    ended: bool
    requeued: bool


async def mark_lease_expired_if_due(
    conn: Connection, execution_id: ExecutionId, *, max_reclaim_count: int | None = None
) -> LeaseMarkedExpired | LeaseNotExpired:
    """Void the lease of the execution if it has expired, exactly as the sweep would.

    `max_reclaim_count` replaces the cap of its policy.
    """
    seen = await fetch_maybe(
        conn,
        MARK_LEASE_EXPIRED,
        SeenLease,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        max_reclaim_count=max_reclaim_count,
    )
    if seen is not None and (seen.ended or seen.requeued):
        state = PublicState.FAILED if seen.ended else PublicState.WAITING
        return LeaseMarkedExpired(execution_id=execution_id, public_state=state)
    return LeaseNotExpired(execution_id=execution_id, reason=not_due(seen))


def not_due(seen: SeenLease | None) -> NotExpiredReason:
    """The first reason that applies."""
    if seen is None:
        return NotExpiredReason.EXECUTION_NOT_FOUND
    if seen.lifecycle_phase != LifecyclePhase.ACTIVE:
        return NotExpiredReason.NOT_ACTIVE
    if seen.ownership_state != OwnershipState.LEASED:
        return NotExpiredReason.UNOWNED
    return NotExpiredReason.NOT_YET_EXPIRED
