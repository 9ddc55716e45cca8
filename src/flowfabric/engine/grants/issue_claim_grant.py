"""Runnable and staying so: one named execution is promised to one worker."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.grant import ClaimGrant, claim_grant
from flowfabric.engine.grants.stored_grant import Terms, newest_grant, signing_key, store_grant
from flowfabric.engine.lifecycle.lock_for_claim import check_same_lane, lock_for_claim, mismatch
from flowfabric.engine.lifecycle.note_capability_mismatch import note_capability_mismatch
from flowfabric.errors import (
    ExecutionNotEligible,
    ExecutionNotLeaseable,
    GrantAlreadyExists,
    NotFound,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.states import GrantKind


async def issue_claim_grant(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    lane_id: str,
    worker_id: str,
    worker_instance_id: str,
    worker_capabilities: Sequence[str] = (),
    grant_ttl_ms: int = 5000,
    capability_hash: str | None = None,
    route_snapshot_json: str | None = None,
    admission_summary: str | None = None,
) -> ClaimGrant | ValidationError:
    """A grant for this worker to claim this execution; needs a transaction.

    A worker that lacks capabilities comes back as the `ValidationError(capability_mismatch)` that
    names them, and the execution remembers when: the error is returned, not raised, so that the
    caller's transaction commits the memory, and the caller raises it after that. Raises, in this
    order: `ValidationError` for the arguments, `Unavailable` while there is no key to sign with,
    `NotFound`, `ValidationError(invalid_input)` for another lane than the execution's,
    `ExecutionNotEligible`, `ExecutionNotLeaseable` when the lane is not active, and
    `GrantAlreadyExists` while any grant of it runs. A refusal that is raised writes nothing.
    """
    terms = Terms(
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lane_id=lane_id,
        worker_capabilities=worker_capabilities,
        grant_ttl_ms=grant_ttl_ms,
        capability_hash=capability_hash,
        route_snapshot_json=route_snapshot_json,
        admission_summary=admission_summary,
    )
    key = await signing_key(conn, "issue_claim_grant")
    seen = await lock_for_claim(conn, execution_id)
    if seen is None:
        raise NotFound("execution", execution_id)
    check_same_lane(seen, lane_id)
    if not seen.is_eligible:
        raise ExecutionNotEligible(execution_id, seen.public_state)
    if seen.closed_lane is not None:
        raise ExecutionNotLeaseable(execution_id, seen.closed_lane)
    promised = await newest_grant(conn, execution_id)
    if promised is not None and promised.live:
        raise GrantAlreadyExists(execution_id)
    mismatched = mismatch(seen, worker_capabilities)
    if mismatched is not None:
        await note_capability_mismatch(conn, execution_id)
        return mismatched
    stored = await store_grant(conn, key, GrantKind.CLAIM, execution_id, terms, now_ms=seen.now_ms)
    if stored is None:
        raise GrantAlreadyExists(execution_id)
    return claim_grant(stored)
