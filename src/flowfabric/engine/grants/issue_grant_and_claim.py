"""runnable → active: an operator claims an execution by its id, without a grant before."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.stored_grant import require_no_grant
from flowfabric.engine.lifecycle.claim_by_id import LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.engine.lifecycle.lock_for_claim import (
    check_same_lane,
    claim_refusal,
    require_for_claim,
)
from flowfabric.ids import ExecutionId

OPERATOR: Final = "operator"


class GrantedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The lease that the operator holds."""

    lease_id: UUID
    lease_epoch: int
    attempt_index: int


async def issue_grant_and_claim(
    conn: Connection, execution_id: ExecutionId, *, lane_id: str, lease_ttl: float | timedelta
) -> GrantedClaim:
    """Worker `operator` holds the execution; needs a transaction.

    No grant is written, because the claim would delete it at once. An interrupted attempt goes on;
    otherwise the next one begins. Raises, in this order: `NotFound`,
    `ValidationError(invalid_input)` if the execution is on another lane, `ExecutionNotActive`,
    `LeaseConflict`, `ExecutionNotLeaseable`, `ActiveAttemptExists`, `GrantAlreadyExists` if a
    worker has a grant that is live. A refusal writes nothing.
    """
    request = LeaseRequest(worker_id=OPERATOR, worker_instance_id=OPERATOR, lease_ttl=lease_ttl)
    seen = await require_for_claim(conn, execution_id)
    check_same_lane(seen, lane_id)
    refusal = claim_refusal(execution_id, seen)
    if refusal is not None:
        raise refusal
    await require_no_grant(conn, execution_id)
    kind = LeaseHandleKind.RESUMED if seen.is_interrupted else LeaseHandleKind.FRESH
    claimed = await claim_by_id(
        conn,
        execution_id,
        request,
        lease_epoch=seen.lease_epoch,
        kind=kind,
        quota_key_id=seen.quota_key_id,
    )
    return GrantedClaim(
        lease_id=claimed.lease.lease_id,
        lease_epoch=claimed.lease.lease_epoch,
        attempt_index=claimed.lease.attempt_index,
    )
