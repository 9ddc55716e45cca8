"""runnable → active: a worker with a claim grant claims the execution by its id."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

from flowfabric.counters import CLAIM_FROM_GRANT_SECONDS
from flowfabric.db.rows import Connection
from flowfabric.engine.grants.stored_grant import require_claim_grant
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById, LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.engine.lifecycle.lock_for_claim import (
    LockedForClaim,
    claim_refusal,
    require_for_claim,
)
from flowfabric.errors import (
    EngineError,
    ExecutionNotLeaseable,
    UseClaimResumed,
    invalid_input,
)
from flowfabric.ids import ExecutionId

_MAX_INDEX: Final = 2**31 - 1


async def claim_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    worker_id: str,
    worker_instance_id: str,
    expected_attempt_index: int,
    lease_ttl: float | timedelta,
    lease_id: UUID | None = None,
    attempt_timeout: float | timedelta | None = None,
) -> ClaimedById:
    """The execution is leased to the worker, and its grants are deleted; needs a transaction.

    `attempt_timeout` replaces the one of the policy. Raises, in this order: `NotFound`,
    `ExecutionNotActive` (not runnable), `LeaseConflict`, `ExecutionNotLeaseable` (delayed, blocked,
    on a lane that is not active, or past its deadline), `ActiveAttemptExists`, `UseClaimResumed`
    (the attempt was interrupted), `ExecutionNotLeaseable` (another attempt is next),
    `InvalidClaimGrant` (no grant, or that of another worker), `ClaimGrantExpired`. A refusal
    writes nothing.
    """
    if not 0 <= expected_attempt_index <= _MAX_INDEX:
        raise invalid_input("expected_attempt_index", expected_attempt_index, "is out of range")
    began = time.monotonic()
    request = LeaseRequest(
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lease_ttl=lease_ttl,
        lease_id=lease_id or uuid4(),
        attempt_timeout=attempt_timeout,
    )
    seen = await require_for_claim(conn, execution_id)
    refusal = attempt_refusal(execution_id, seen, expected_attempt_index)
    if refusal is not None:
        raise refusal
    await require_claim_grant(conn, execution_id, worker_id=worker_id)
    claimed = await claim_by_id(
        conn,
        execution_id,
        request,
        lease_epoch=seen.lease_epoch,
        kind=LeaseHandleKind.FRESH,
        quota_key_id=seen.quota_key_id,
    )
    CLAIM_FROM_GRANT_SECONDS.observe(time.monotonic() - began, claimed.lane_id)
    return claimed


def attempt_refusal(
    execution_id: ExecutionId, seen: LockedForClaim, expected_attempt_index: int
) -> EngineError | None:
    """The first error that refuses the claim; None if it is allowed."""
    refusal = claim_refusal(execution_id, seen)
    if refusal is not None:
        return refusal
    if seen.is_interrupted:
        return UseClaimResumed(execution_id)
    if expected_attempt_index != seen.attempt_index:
        return ExecutionNotLeaseable(
            execution_id, f"attempt {seen.attempt_index} is next, not {expected_attempt_index}"
        )
    return None
