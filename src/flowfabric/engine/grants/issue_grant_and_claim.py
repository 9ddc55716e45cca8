"""runnable → active: an operator grants an execution to themselves and claims it in one go."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.stored_grant import newest_grant
from flowfabric.engine.lifecycle.claim_by_id import LeaseRequest, claim_by_id
from flowfabric.engine.lifecycle.lease import LeaseHandleKind
from flowfabric.engine.lifecycle.lock_for_claim import (
    check_same_lane,
    claim_refusal,
    lock_for_claim,
)
from flowfabric.errors import GrantAlreadyExists, NotFound
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

    The grant would be used up by the claim at once, so none is written. An interrupted attempt
    goes on, else the next one begins. Raises, in this order: `NotFound`,
    `ValidationError(invalid_input)` for another lane than the execution's, `ExecutionNotActive`,
    `LeaseConflict`, `ExecutionNotLeaseable`, `ActiveAttemptExists`, `GrantAlreadyExists` while it
    is promised to a worker. A refusal writes nothing.
    """
    request = LeaseRequest(worker_id=OPERATOR, worker_instance_id=OPERATOR, lease_ttl=lease_ttl)
    seen = await lock_for_claim(conn, execution_id)
    if seen is None:
        raise NotFound("execution", execution_id)
    check_same_lane(seen, lane_id)
    refusal = claim_refusal(execution_id, seen)
    if refusal is not None:
        raise refusal
    promised = await newest_grant(conn, execution_id)
    if promised is not None and promised.live:
        raise GrantAlreadyExists(execution_id)
    kind = LeaseHandleKind.RESUMED if seen.is_interrupted else LeaseHandleKind.FRESH
    taken = await claim_by_id(conn, execution_id, request, lease_epoch=seen.lease_epoch, kind=kind)
    return GrantedClaim(
        lease_id=taken.lease.lease_id,
        lease_epoch=taken.lease.lease_epoch,
        attempt_index=taken.lease.attempt_index,
    )
