"""One execution is reserved for one worker; its state does not change."""

from __future__ import annotations

from typing import Unpack

from flowfabric.db.rows import Connection
from flowfabric.engine.grants.grant import ClaimGrant, claim_grant
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
from flowfabric.engine.lifecycle.note_capability_mismatch import note_capability_mismatch
from flowfabric.errors import (
    ExecutionNotEligible,
    ExecutionNotLeaseable,
    GrantAlreadyExists,
    ValidationError,
)
from flowfabric.ids import ExecutionId
from flowfabric.states import GrantKind


async def issue_claim_grant(
    conn: Connection,
    execution_id: ExecutionId,
    **given: Unpack[GrantArguments],
) -> ClaimGrant | ValidationError:
    """A grant for this worker to claim this execution; needs a transaction.

    If the worker lacks capabilities, the answer is a `ValidationError(capability_mismatch)` that
    names them, and the time of the mismatch is stored. That error is returned, not raised, so that
    the transaction commits; the caller raises it afterwards. Raises, in this order:
    `ValidationError` for the arguments, `Unavailable` if there is no key to sign with, `NotFound`,
    `ValidationError(invalid_input)` if the execution is on another lane, `ExecutionNotEligible`,
    `ExecutionNotLeaseable` if the lane is paused or disabled or the deadline has passed, and
    `GrantAlreadyExists` if a grant of the execution is live. A refusal that is raised writes
    nothing.
    """
    terms = GrantTerms(**given)
    key = await signing_key(conn, "issue_claim_grant")
    seen = await require_for_claim(conn, execution_id)
    check_same_lane(seen, terms.lane_id)
    if not seen.is_eligible:
        raise ExecutionNotEligible(execution_id, seen.public_state)
    if seen.obstacle is not None:
        raise ExecutionNotLeaseable(execution_id, seen.obstacle)
    await require_no_grant(conn, execution_id)
    mismatch = capability_mismatch(seen, terms.worker_capabilities)
    if mismatch is not None:
        await note_capability_mismatch(conn, execution_id)
        return mismatch
    stored = await store_grant(
        conn,
        key,
        GrantKind.CLAIM,
        execution_id,
        terms,
        now_ms=seen.now_ms,
        lease_epoch=seen.lease_epoch,
    )
    if stored is None:
        raise GrantAlreadyExists(execution_id)
    return claim_grant(stored)
