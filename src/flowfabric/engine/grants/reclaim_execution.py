"""active or runnable → active: a new attempt replaces one whose lease was lost, up to a cap."""

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
    reclaim_obstacle,
)
from flowfabric.engine.grants.stored_grant import delete_grants, latest_grant
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById, LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.engine.lifecycle.lock_for_claim import LockedForClaim, lock_for_claim
from flowfabric.engine.lifecycle.mark_lease_expired_if_due import mark_lease_expired_if_due
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.errors import NotFound, invalid_input
from flowfabric.ids import ExecutionId
from flowfabric.states import FailureClass, GrantKind, LifecyclePhase, TerminalOutcome
from flowfabric.stored_policy import MAX_COUNT

log: Final = logging.getLogger("flowfabric.lifecycle")

_WARN_EVERY: Final = 100
"""A warning is logged each time so many more reclaims have happened."""


class GrantNotFound(msgspec.Struct, frozen=True, kw_only=True):
    """The execution has no reclaim grant, or it has expired or was used; nothing was written."""

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
    """A new attempt replaces the lost one, and the grants are deleted; needs a transaction.

    An expired lease that no sweep has voided is voided first. One reclaim more than
    `max_reclaim_count` (default: that of the policy) ends the execution as failed with reason
    `max_reclaims_exceeded`. The worker must be the one of the grant, in any of its processes;
    another worker, or an invalid argument, raises `ValidationError(invalid_input)`. Raises
    `NotFound` if the execution of the grant was deleted.
    """
    if max_reclaim_count is not None and (
        type(max_reclaim_count) is not int or not 0 <= max_reclaim_count <= MAX_COUNT
    ):
        raise invalid_input(
            "max_reclaim_count", max_reclaim_count, f"must be a whole number from 0 to {MAX_COUNT}"
        )
    request = LeaseRequest(
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lease_ttl=lease_ttl,
        lease_id=lease_id or uuid4(),
        attempt_timeout=attempt_timeout,
    )
    seen = await lock_for_claim(conn, execution_id)
    grant = await latest_grant(conn, execution_id, GrantKind.RECLAIM)
    if grant is None:
        return GrantNotFound(execution_id=execution_id)
    if grant.worker_id != worker_id:
        raise invalid_input("worker_id", worker_id, "is not the worker of the reclaim grant")
    if grant.expired:
        return GrantNotFound(execution_id=execution_id)
    if seen is None:
        raise NotFound("execution", execution_id)
    obstacle = await reclaim_obstacle(conn, execution_id, seen)
    if obstacle is not None:
        return NotReclaimable(execution_id=execution_id, detail=obstacle)
    if grant.used_up:
        return GrantNotFound(execution_id=execution_id)
    count = seen.lease_reclaim_count + 1
    cap = seen.reclaim_cap if max_reclaim_count is None else max_reclaim_count
    lease_epoch = await _void_expired_lease(conn, execution_id, seen, cap)
    if count > cap:
        await _end(conn, execution_id)
        return ReclaimCapExceeded(execution_id=execution_id, reclaim_count=count)
    if count % _WARN_EVERY == 0:
        log.warning("execution %s is reclaimed for the %dth time", execution_id, count)
    return await claim_by_id(
        conn,
        execution_id,
        request,
        lease_epoch=lease_epoch,
        kind=LeaseHandleKind.RECLAIMED,
        quota_key_id=seen.quota_key_id,
    )


async def _void_expired_lease(
    conn: Connection, execution_id: ExecutionId, seen: LockedForClaim, cap: int
) -> int:
    """The epoch of the execution, which is unleased now; at the cap it has ended."""
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
    await delete_grants(conn, execution_id)
