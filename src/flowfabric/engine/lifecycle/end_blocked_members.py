"""runnable(blocked) → terminal(cancelled): members of a cancelled flow that wait for others."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.sql.close import SUSPENSION_CLOSED
from flowfabric.engine.lifecycle.sql.end import end_unleased
from flowfabric.ids import ExecutionId, clean_text
from flowfabric.states import TerminalOutcome

# An execution that waits for others is not queued, has no lease and no grant, so no claim is in
# progress: it is locked, looked at and ended by one statement. Other executions need
# `lock_executions` before.
END_BLOCKED_MEMBERS: Final[LiteralString] = (
    """
-- lifecycle.end_blocked_members
WITH unended AS MATERIALIZED (
    SELECT FROM ff.exec_core
     WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s
       AND lifecycle_phase <> 'terminal'
     LIMIT %(limit)s::bigint + 1
), seen AS MATERIALIZED ( -- those that wait for others, if few are left; passing over rows in use
    SELECT e.partition_key, e.execution_id, e.attempt_state, e.ctid AS place FROM ff.exec_core e
     WHERE e.partition_key = %(partition_key)s AND e.flow_id = %(flow_id)s
       AND e.lifecycle_phase = 'runnable' AND e.eligibility_state = 'blocked_by_dependencies'
       AND (SELECT count(*) FROM unended) <= %(limit)s::bigint
       FOR NO KEY UPDATE OF e SKIP LOCKED
)"""
    + end_unleased(
        "seen",
        outcome="'cancelled'",
        cancellation_reason="%(reason)s::text",
        cancelled_by="%(cancelled_by)s::text",
    )
    + SUSPENSION_CLOSED
    + """
SELECT execution_id FROM ended
"""
)


class _Ended(msgspec.Struct, frozen=True, gc=False):
    execution_id: UUID


async def end_blocked_members(
    conn: Connection, partition_key: int, flow_id: UUID, *, reason: str, by: str, limit: int
) -> list[ExecutionId]:
    """Cancel the members that wait for other members; those that this call ended.

    None is ended if more than `limit` members have not ended. A member that another transaction has
    locked, or has just changed, is left as it is.
    """
    rows = await fetch_all(
        conn,
        END_BLOCKED_MEMBERS,
        _Ended,
        partition_key=partition_key,
        flow_id=flow_id,
        reason=clean_text(reason),
        cancelled_by=by,
        close_reason=TerminalOutcome.CANCELLED.value,
        limit=limit,
    )
    return [ExecutionId(partition_key, row.execution_id) for row in rows]
