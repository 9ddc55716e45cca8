"""runnable(parked) → terminal(cancelled): members that were requeued in a cancelled flow."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.sql.end import end
from flowfabric.engine.lifecycle.sql.fence import LOCKED_COLUMNS, WITH_LEASE

END_PARKED_MEMBERS: Final[LiteralString] = (
    f"""
-- lifecycle.end_parked_members
WITH seen AS (        -- parked members that no backlog lists, passing over rows in use
    SELECT{LOCKED_COLUMNS}, e.flow_id AS of_flow
      FROM ff.exec_core e
      {WITH_LEASE}
     WHERE e.exceptional_state = 'paused_by_flow_cancel'
       AND NOT EXISTS (SELECT FROM ff.cancel_backlog_member m
                        WHERE (m.partition_key, m.execution_id) = (e.partition_key, e.execution_id))
     LIMIT %(limit)s FOR NO KEY UPDATE OF e SKIP LOCKED
), parked AS (        -- each with the reason that its flow was cancelled for
    SELECT seen.*, coalesce(f.cancel_reason, 'flow_cancelled') AS reason
      FROM seen LEFT JOIN ff.flow_core f
        ON (f.partition_key, f.flow_id) = (seen.partition_key, seen.of_flow)
)"""
    + end(
        "parked",
        outcome="'cancelled'",
        cancellation_reason="reason",
        cancelled_by="'cancel_flow'",
        lease_reason="'cancelled'",
    )
    + """
SELECT count(*) AS moved FROM ended
"""
)


async def end_parked_members(conn: Connection, limit: int) -> int:
    """Cancel at most `limit` members that ran when their flow was cancelled and were requeued."""
    return (await fetch_one(conn, END_PARKED_MEMBERS, Moved, limit=limit)).moved
