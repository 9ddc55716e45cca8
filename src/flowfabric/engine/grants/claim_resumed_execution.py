"""runnable → active: a worker goes on with an attempt that was resumed, or with a grant."""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import UUID, uuid4

from flowfabric.counters import CLAIM_FROM_GRANT_SECONDS
from flowfabric.db.rows import Connection
from flowfabric.engine.grants.stored_grant import has_claim_grant, require_claim_grant
from flowfabric.engine.lifecycle.claim_by_id import ClaimedById, LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.engine.lifecycle.lock_for_claim import require_for_claim
from flowfabric.errors import ExecutionNotLeaseable, NotAResumedExecution
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState


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
    """The same attempt goes on under a new epoch, and the grants are deleted; needs a transaction.

    An execution that was suspended and resumed needs no grant; one that exists must be that of
    this worker. This accepts every other interrupted attempt too, with a grant: `claim_execution`
    refuses attempts that were delayed or whose lease was lost, and without this no grant could
    claim them. Raises, in this order: `NotFound`, `ExecutionNotLeaseable` (not waiting for a
    worker, on a lane that is not active, or past its deadline), `NotAResumedExecution`,
    `InvalidClaimGrant`, `ClaimGrantExpired`. A refusal writes nothing.
    """
    began = time.monotonic()
    request = LeaseRequest(
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lease_ttl=lease_ttl,
        lease_id=lease_id or uuid4(),
        attempt_timeout=attempt_timeout,
    )
    seen = await require_for_claim(conn, execution_id)
    if not seen.is_eligible:
        raise ExecutionNotLeaseable(execution_id, seen.not_eligible)
    if seen.obstacle is not None:
        raise ExecutionNotLeaseable(execution_id, seen.obstacle)
    if not seen.is_interrupted:
        raise NotAResumedExecution(execution_id)
    resumed = seen.public_state == PublicState.RESUMABLE
    if not resumed or await has_claim_grant(conn, execution_id):
        await require_claim_grant(conn, execution_id, worker_id=worker_id)
    claimed = await claim_by_id(
        conn,
        execution_id,
        request,
        lease_epoch=seen.lease_epoch,
        kind=LeaseHandleKind.RESUMED,
        quota_key_id=seen.quota_key_id,
    )
    CLAIM_FROM_GRANT_SECONDS.observe(time.monotonic() - began, claimed.lane_id)
    return claimed
