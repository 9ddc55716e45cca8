"""Whether an execution can be reclaimed: continued in a new attempt after its lease was lost."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.lifecycle.lock_for_claim import LockedForClaim
from flowfabric.ids import ExecutionId
from flowfabric.states import AttemptOutcome, LifecyclePhase

# A statement of its own, after the row is locked: a join would read the attempt as it was before.
LAST_OUTCOME: Final[LiteralString] = """
-- grants.reclaim_obstacle
SELECT outcome FROM ff.attempt
 WHERE (partition_key, execution_id, attempt_index)
     = (%(partition_key)s, %(execution_id)s, %(attempt_index)s)
"""

_LOST: Final = (AttemptOutcome.LEASE_EXPIRED_RECLAIMABLE, AttemptOutcome.LEASE_REVOKED)


class NotReclaimable(msgspec.Struct, frozen=True, kw_only=True):
    """No lease of the execution was lost; nothing was written."""

    execution_id: ExecutionId
    detail: str


class ReclaimCapExceeded(msgspec.Struct, frozen=True, kw_only=True):
    """The leases of the execution were lost as often as its cap allows."""

    execution_id: ExecutionId
    reclaim_count: int


class _Attempt(msgspec.Struct, frozen=True):
    outcome: str


async def reclaim_obstacle(
    conn: Connection, execution_id: ExecutionId, seen: LockedForClaim
) -> str | None:
    """Why the execution cannot be reclaimed; None if it can.

    It can if its lease has expired and no sweep has voided it, or if it waits for a worker because
    its last lease expired or was revoked; unless its lane starts none or its deadline has passed.
    """
    if seen.lifecycle_phase == LifecyclePhase.TERMINAL:
        return f"it has ended as {seen.public_state}"
    if seen.obstacle is not None:
        return seen.obstacle
    if seen.lifecycle_phase == LifecyclePhase.ACTIVE:
        return None if seen.lease_expired else "its lease still runs"
    if not (seen.is_eligible and seen.is_interrupted):
        return f"it is {seen.public_state} and no lease of it was lost"
    attempt = await fetch_maybe(
        conn,
        LAST_OUTCOME,
        _Attempt,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        attempt_index=seen.attempt_index,
    )
    outcome = None if attempt is None else attempt.outcome
    return None if outcome in _LOST else f"its last attempt is {outcome}, not lost"
