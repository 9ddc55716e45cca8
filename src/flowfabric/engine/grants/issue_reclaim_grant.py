"""One worker may reclaim an execution whose lease was lost; its state does not change."""

from __future__ import annotations

from typing import Unpack

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.grant import ReclaimGrant, reclaim_grant
from flowfabric.engine.grants.reclaimable import (
    NotReclaimable,
    ReclaimCapExceeded,
    reclaim_obstacle,
)
from flowfabric.engine.grants.stored_grant import (
    GrantArguments,
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
from flowfabric.states import GrantKind, LifecyclePhase


async def issue_reclaim_grant(
    conn: Connection,
    execution_id: ExecutionId,
    **given: Unpack[GrantArguments],
) -> ReclaimGrant | ReclaimCapExceeded | NotReclaimable:
    """A grant for this worker to reclaim this execution; the execution itself is not changed.

    The answer is `ReclaimCapExceeded` if its policy allows no further reclaim, and
    `NotReclaimable` if no lease of it is lost, its lane is not active or its deadline has passed.
    Needs a transaction. Raises, in this order: `ValidationError` for the arguments, `Unavailable`
    if there is no key to sign with, `NotFound`, `ValidationError(invalid_input)` if the execution
    is on another lane; and, after the checks for those two answers, `GrantAlreadyExists` if a
    grant of the execution is live, and `ValidationError(capability_mismatch)`, which names what
    the worker lacks.
    """
    terms = GrantTerms(**given)
    key = await signing_key(conn, "issue_reclaim_grant")
    seen = await require_for_claim(conn, execution_id)
    check_same_lane(seen, terms.lane_id)
    if seen.lease_reclaim_count >= seen.reclaim_cap:
        return ReclaimCapExceeded(execution_id=execution_id, reclaim_count=seen.lease_reclaim_count)
    obstacle = await reclaim_obstacle(conn, execution_id, seen)
    if obstacle is not None:
        return NotReclaimable(execution_id=execution_id, detail=obstacle)
    await require_no_grant(conn, execution_id)
    mismatch = capability_mismatch(seen, terms.worker_capabilities)
    if mismatch is not None:
        raise mismatch
    # The end of a lost lease that is still stored adds one to the epoch.
    still_leased = seen.lifecycle_phase == LifecyclePhase.ACTIVE
    stored = await store_grant(
        conn,
        key,
        GrantKind.RECLAIM,
        execution_id,
        terms,
        now_ms=seen.now_ms,
        lease_epoch=seen.lease_epoch + still_leased,
    )
    if stored is None:
        raise GrantAlreadyExists(execution_id)
    return reclaim_grant(stored, lane_id=terms.lane_id)
