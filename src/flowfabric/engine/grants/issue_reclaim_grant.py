"""One worker may reclaim an execution whose lease was lost; its state does not change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.grant import ReclaimGrant, reclaim_grant
from flowfabric.engine.grants.reclaimable import (
    NotReclaimable,
    ReclaimCapExceeded,
    reclaim_obstacle,
)
from flowfabric.engine.grants.stored_grant import (
    DEFAULT_TTL,
    GrantTerms,
    require_no_grant,
    signing_key,
    store_grant,
)
from flowfabric.engine.lifecycle.lock_for_claim import (
    capability_mismatch,
    check_same_lane,
    require_for_claim,
)
from flowfabric.errors import GrantAlreadyExists
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
    grant_ttl: float | timedelta = DEFAULT_TTL,
    capability_hash: str | None = None,
    route_snapshot_json: str | None = None,
    admission_summary: str | None = None,
) -> ReclaimGrant | ReclaimCapExceeded | NotReclaimable:
    """A grant for this worker to reclaim this execution; the execution itself is not changed.

    The answer is `ReclaimCapExceeded` if its policy allows no further reclaim, and
    `NotReclaimable` if no lease of it is lost, its lane is not active or its deadline has passed.
    Needs a transaction. Raises, in this order: `ValidationError` for the arguments, `Unavailable` if there is no key to
    sign with, `NotFound`, `ValidationError(invalid_input)` if the execution is on another lane;
    and, after the checks for those two answers, `GrantAlreadyExists` if a grant of the execution
    has not expired, and `ValidationError(capability_mismatch)`, which names what the worker lacks.
    """
    terms = GrantTerms(
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lane_id=lane_id,
        worker_capabilities=worker_capabilities,
        grant_ttl=grant_ttl,
        capability_hash=capability_hash,
        route_snapshot_json=route_snapshot_json,
        admission_summary=admission_summary,
    )
    key = await signing_key(conn, "issue_reclaim_grant")
    seen = await require_for_claim(conn, execution_id)
    check_same_lane(seen, lane_id)
    if seen.lease_reclaim_count >= seen.reclaim_cap:
        return ReclaimCapExceeded(execution_id=execution_id, reclaim_count=seen.lease_reclaim_count)
    obstacle = await reclaim_obstacle(conn, execution_id, seen)
    if obstacle is not None:
        return NotReclaimable(execution_id=execution_id, detail=obstacle)
    await require_no_grant(conn, execution_id)
    mismatch = capability_mismatch(seen, worker_capabilities)
    if mismatch is not None:
        raise mismatch
    stored = await store_grant(
        conn, key, GrantKind.RECLAIM, execution_id, terms, now_ms=seen.now_ms
    )
    if stored is None:
        raise GrantAlreadyExists(execution_id)
    return reclaim_grant(stored, lane_id=lane_id)
