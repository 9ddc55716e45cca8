"""active or runnable → active: a worker goes on with an interrupted attempt, by a signed grant."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

from flowfabric.counters import CLAIM_FROM_GRANT_SECONDS
from flowfabric.db.rows import Connection
from flowfabric.engine.grants.grant import ClaimGrant, ReclaimGrant
from flowfabric.engine.grants.verify_grant import VerifiedGrant, verify_grant
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById, LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.engine.lifecycle.lock_for_claim import LockedForClaim, lock_for_claim
from flowfabric.engine.lifecycle.mark_lease_expired_if_due import mark_lease_expired_if_due
from flowfabric.errors import InvalidClaimGrant, InvalidGrant, NotFound
from flowfabric.states import LifecyclePhase

_GONE: Final = "grant_unknown"
"""The code of a grant that was used, or deleted because its execution was claimed."""


async def claim_from_resume_grant(
    conn: Connection,
    grant: ClaimGrant | ReclaimGrant,
    *,
    worker_id: str,
    worker_instance_id: str,
    lease_ttl: float | timedelta,
    lease_id: UUID | None = None,
    attempt_timeout: float | timedelta | None = None,
) -> ClaimedById | None:
    """The same attempt goes on under a new epoch, and the grants are deleted; needs a transaction.

    None, and nothing written, if the attempt cannot go on: another worker holds a lease that still
    runs, or the execution has ended, waits for something else than a worker, has a next attempt
    that has not begun, is on a lane that starts none, is past its deadline, or has spent a budget.
    An expired lease that no sweep has voided is voided first.

    The worker must be the one of the grant, in any of its processes. Raises, in this order:
    `ValidationError(invalid_input)` for the arguments; `InvalidGrant` as `verify_grant` does, but
    for a grant that is used or deleted only if the attempt could go on; `NotFound` if the execution
    does not exist, or has no attempt yet; `InvalidClaimGrant` for another worker;
    `ExecutionNotLeaseable` if its limit has no room.
    """
    began = time.monotonic()
    request = LeaseRequest(
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lease_ttl=lease_ttl,
        lease_id=lease_id or uuid4(),
        attempt_timeout=attempt_timeout,
    )
    execution_id = grant.execution_id
    seen = await lock_for_claim(conn, execution_id)
    verified = await _verified(conn, grant)
    if seen is None:
        raise NotFound("execution", execution_id)
    if seen.lease_epoch == 0:
        raise NotFound("attempt", f"0 of {execution_id}")
    if not _can_go_on(seen):
        return None
    if isinstance(verified, InvalidGrant):
        raise verified
    if verified.worker_id != worker_id:
        raise InvalidClaimGrant(execution_id, worker_id)
    lease_epoch = seen.lease_epoch
    if seen.lifecycle_phase == LifecyclePhase.ACTIVE:
        await mark_lease_expired_if_due(conn, execution_id)
        lease_epoch += 1
    claimed = await claim_by_id(
        conn,
        execution_id,
        request,
        lease_epoch=lease_epoch,
        kind=LeaseHandleKind.RESUMED,
        quota_key_id=seen.quota_key_id,
    )
    CLAIM_FROM_GRANT_SECONDS.observe(time.monotonic() - began, claimed.lane_id)
    return claimed


async def _verified(
    conn: Connection, grant: ClaimGrant | ReclaimGrant
) -> VerifiedGrant | InvalidGrant:
    """The worker of the grant; or the error of a grant that is not there any more."""
    try:
        return await verify_grant(conn, grant)
    except InvalidGrant as refused:
        if refused.code != _GONE:
            raise
        return refused


def _can_go_on(seen: LockedForClaim) -> bool:
    """Is there an attempt that began, that no worker holds, and that may be claimed now?"""
    if seen.obstacle is not None:
        return False
    if seen.lifecycle_phase == LifecyclePhase.ACTIVE:
        return seen.lease_expired
    return seen.is_eligible and seen.is_interrupted
