"""active → runnable or terminal(failed): the lease of one execution is voided if it expired."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe, fetch_one
from flowfabric.engine.lifecycle.sql.expire_lease import expire_lease
from flowfabric.engine.lifecycle.sql.fence import LOCKED_COLUMNS
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState

MARK_LEASE_EXPIRED: Final[LiteralString] = (
    f"""
-- lifecycle.mark_lease_expired_if_due
WITH named AS (       -- the execution with its lease, both locked: a renewal locks only the lease
    SELECT{LOCKED_COLUMNS}, l.lease_expires_at_ms <= ff.now_ms() AS is_expired,
           %(max_reclaim_count)s::integer AS given_cap
      FROM ff.exec_core e JOIN ff.lease l
        ON (l.partition_key, l.execution_id, l.lease_epoch)
         = (e.partition_key, e.execution_id, e.lease_epoch + 1)
     WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
       FOR NO KEY UPDATE
), seen AS (
    SELECT * FROM named WHERE is_expired
)"""
    + expire_lease("seen")
    + """
SELECT EXISTS (SELECT FROM ended) AS ended, EXISTS (SELECT FROM requeued) AS requeued
  FROM named
"""
)

IS_STORED: Final[LiteralString] = """
-- lifecycle.mark_lease_expired_if_due: does the execution, which no worker holds, exist?
SELECT EXISTS (SELECT FROM ff.exec_core e
                WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s))
       AS stored
"""


class NotExpiredReason(StrEnum):
    """Why no lease was voided."""

    EXECUTION_NOT_FOUND = "execution_not_found"
    NOT_ACTIVE = "not_active"
    UNOWNED = "unowned"
    """Never the answer: an execution is active exactly while a worker holds its lease."""
    NOT_YET_EXPIRED = "not_yet_expired"


class LeaseMarkedExpired(msgspec.Struct, frozen=True, kw_only=True):
    """The lease is void: the execution waits, or has failed because of its cap."""

    execution_id: ExecutionId
    public_state: PublicState


class LeaseNotExpired(msgspec.Struct, frozen=True, kw_only=True):
    """No lease of the execution had expired; nothing was written."""

    execution_id: ExecutionId
    reason: NotExpiredReason


class _Lease(msgspec.Struct, frozen=True):
    ended: bool
    requeued: bool


class _IsStored(msgspec.Struct, frozen=True):
    stored: bool


async def mark_lease_expired_if_due(
    conn: Connection, execution_id: ExecutionId, *, max_reclaim_count: int | None = None
) -> LeaseMarkedExpired | LeaseNotExpired:
    """Void the lease of the execution if it has expired, exactly as the sweep would.

    `max_reclaim_count` replaces the cap of its policy.
    """
    key = {"partition_key": execution_id.partition_key, "execution_id": execution_id.uuid}
    lease = await fetch_maybe(
        conn, MARK_LEASE_EXPIRED, _Lease, max_reclaim_count=max_reclaim_count, **key
    )
    if lease is not None and (lease.ended or lease.requeued):
        state = PublicState.FAILED if lease.ended else PublicState.WAITING
        return LeaseMarkedExpired(execution_id=execution_id, public_state=state)
    if lease is not None:
        reason = NotExpiredReason.NOT_YET_EXPIRED
    elif (await fetch_one(conn, IS_STORED, _IsStored, **key)).stored:
        reason = NotExpiredReason.NOT_ACTIVE
    else:
        reason = NotExpiredReason.EXECUTION_NOT_FOUND
    return LeaseNotExpired(execution_id=execution_id, reason=reason)
