"""runnable → active: the worker that was granted an interrupted execution goes on with it."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.stored_grant import require_claim_grant
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById, LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.engine.lifecycle.lock_for_claim import lock_for_claim
from flowfabric.errors import ExecutionNotLeaseable, NotAResumedExecution, NotFound
from flowfabric.ids import ExecutionId


async def claim_resumed_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    worker_id: str,
    worker_instance_id: str,
    lease_ttl: float | timedelta,
    lease_id: UUID | None = None,
    attempt_timeout: float | timedelta | None = None,
) -> ClaimedById:
    """The same attempt goes on under a new epoch and the grant is used up; needs a transaction.

    Any interrupted attempt will do, not only one that a signal resumed: what was put down by a
    delay or lost with its lease is refused by `claim_execution`, and could not be claimed by grant
    otherwise. Raises, in this order: `NotFound`, `ExecutionNotLeaseable` (it does not wait for a
    worker, or its lane is not active), `NotAResumedExecution`, `InvalidClaimGrant`,
    `ClaimGrantExpired`. A refusal writes nothing.
    """
    request = LeaseRequest(
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lease_ttl=lease_ttl,
        lease_id=lease_id or uuid4(),
        attempt_timeout=attempt_timeout,
    )
    seen = await lock_for_claim(conn, execution_id)
    if seen is None:
        raise NotFound("execution", execution_id)
    if not seen.is_eligible:
        raise ExecutionNotLeaseable(execution_id, f"it is {seen.public_state}")
    if seen.closed_lane is not None:
        raise ExecutionNotLeaseable(execution_id, seen.closed_lane)
    if not seen.is_interrupted:
        raise NotAResumedExecution(execution_id)
    await require_claim_grant(conn, execution_id, worker_id=worker_id)
    return await claim_by_id(
        conn, execution_id, request, lease_epoch=seen.lease_epoch, kind=LeaseHandleKind.RESUMED
    )
