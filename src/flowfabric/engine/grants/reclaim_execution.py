"""active or runnable → active: a lost lease is made good by a new attempt, up to a cap."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.reclaimable import (
    NotReclaimable,
    ReclaimCapExceeded,
    obstacle_to_reclaim,
)
from flowfabric.engine.grants.stored_grant import forget_grants, newest_grant
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById, LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.engine.lifecycle.lock_for_claim import LockedForClaim, lock_for_claim
from flowfabric.engine.lifecycle.mark_lease_expired_if_due import mark_lease_expired_if_due
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.states import FailureClass, GrantKind, LifecyclePhase, TerminalOutcome

log: Final = logging.getLogger("flowfabric.lifecycle")

_WARN_EVERY: Final = 100


class GrantNotFound(msgspec.Struct, frozen=True, kw_only=True):
    """There is no reclaim grant for the execution, or it has run out; nothing was written."""

    execution_id: ExecutionId


async def reclaim_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    worker_id: str,
    worker_instance_id: str,
    lease_ttl: float | timedelta,
    lease_id: UUID | None = None,
    attempt_timeout: float | timedelta | None = None,
    max_reclaim_count: int | None = None,
) -> ClaimedById | GrantNotFound | NotReclaimable | ReclaimCapExceeded:
    """A new attempt takes the place of the lost one and the grant is used up; needs a transaction.

    A lease that has lapsed but was not taken back is taken back first, as a sweep would. One
    reclaim more than `max_reclaim_count` (unless given, the policy's) ends the execution as failed
    with reason `max_reclaims_exceeded`. The process may be another than the grant's, the worker
    may not: that, like arguments that make no sense, raises `ValidationError(invalid_input)`.
    Raises `NotFound` for a grant whose execution is gone.
    """
    if max_reclaim_count is not None and max_reclaim_count < 0:
        raise invalid_input("max_reclaim_count", max_reclaim_count, "must not be negative")
    request = LeaseRequest(
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lease_ttl=lease_ttl,
        lease_id=lease_id or uuid4(),
        attempt_timeout=attempt_timeout,
    )
    seen = await lock_for_claim(conn, execution_id)
    grant = await newest_grant(conn, execution_id, GrantKind.RECLAIM)
    if grant is None:
        return GrantNotFound(execution_id=execution_id)
    if grant.worker_id != worker_id:
        raise invalid_input("worker_id", worker_id, "is not the worker of the reclaim grant")
    if not grant.live:
        return GrantNotFound(execution_id=execution_id)
    if seen is None:
        raise NotFound("execution", execution_id)
    obstacle = await obstacle_to_reclaim(conn, execution_id, seen)
    if obstacle is not None:
        return NotReclaimable(execution_id=execution_id, detail=obstacle)
    count = seen.lease_reclaim_count + 1
    cap = seen.reclaim_cap if max_reclaim_count is None else max_reclaim_count
    lease_epoch = await _taken_back(conn, execution_id, seen, cap)
    if count > cap:
        await _end(conn, execution_id)
        return ReclaimCapExceeded(execution_id=execution_id, reclaim_count=count)
    if count % _WARN_EVERY == 0:
        log.warning("execution %s is reclaimed for the %dth time", execution_id, count)
    return await claim_by_id(
        conn, execution_id, request, lease_epoch=lease_epoch, kind=LeaseHandleKind.RECLAIMED
    )


async def _taken_back(
    conn: Connection, execution_id: ExecutionId, seen: LockedForClaim, cap: int
) -> int:
    """The epoch under which nobody holds the execution; at the cap, this has ended it."""
    if seen.lifecycle_phase != LifecyclePhase.ACTIVE:
        return seen.lease_epoch
    await mark_lease_expired_if_due(conn, execution_id, max_reclaim_count=cap)
    return seen.lease_epoch + 1


async def _end(conn: Connection, execution_id: ExecutionId) -> None:
    await terminalize(
        conn,
        [execution_id],
        outcome=TerminalOutcome.FAILED,
        reason="max_reclaims_exceeded",
        category=FailureClass.INFRA_CRASH.value,
    )
    await forget_grants(conn, execution_id)
