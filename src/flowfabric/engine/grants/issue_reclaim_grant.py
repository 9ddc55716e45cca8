"""A worker is promised an execution whose lease was lost."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.grant import ReclaimGrant, reclaim_grant
from flowfabric.engine.grants.reclaimable import (
    NotReclaimable,
    ReclaimCapExceeded,
    obstacle_to_reclaim,
)
from flowfabric.engine.grants.stored_grant import Terms, newest_grant, signing_key, store_grant
from flowfabric.engine.lifecycle.lock_for_claim import check_same_lane, lock_for_claim, mismatch
from flowfabric.errors import GrantAlreadyExists, NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import GrantKind


async def issue_reclaim_grant(
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
) -> ReclaimGrant | ReclaimCapExceeded | NotReclaimable:
    """A grant for this worker to reclaim this execution; the execution itself is not changed.

    `ReclaimCapExceeded` when its policy allows no further reclaim, `NotReclaimable` when no lease
    of it is lost or its lane is not active. Raises, in this order: `ValidationError` for the
    arguments, `Unavailable` while there is no key to sign with, `NotFound`,
    `ValidationError(invalid_input)` for another lane than the execution's; and after those two
    answers `GrantAlreadyExists` while any grant of it runs, and
    `ValidationError(capability_mismatch)` naming what the worker lacks. Needs a transaction.
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
    key = await signing_key(conn, "issue_reclaim_grant")
    seen = await lock_for_claim(conn, execution_id)
    if seen is None:
        raise NotFound("execution", execution_id)
    check_same_lane(seen, lane_id)
    if seen.lease_reclaim_count >= seen.reclaim_cap:
        return ReclaimCapExceeded(execution_id=execution_id, reclaim_count=seen.lease_reclaim_count)
    obstacle = await obstacle_to_reclaim(conn, execution_id, seen)
    if obstacle is not None:
        return NotReclaimable(execution_id=execution_id, detail=obstacle)
    promised = await newest_grant(conn, execution_id)
    if promised is not None and promised.live:
        raise GrantAlreadyExists(execution_id)
    mismatched = mismatch(seen, worker_capabilities)
    if mismatched is not None:
        raise mismatched
    stored = await store_grant(
        conn, key, GrantKind.RECLAIM, execution_id, terms, now_ms=seen.now_ms
    )
    if stored is None:
        raise GrantAlreadyExists(execution_id)
    return reclaim_grant(stored, lane_id=lane_id)
