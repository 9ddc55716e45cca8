"""runnable(parked) → terminal(cancelled): members that came back to a cancelled flow."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.sql.end import RUNG, TERMINALIZE
from flowfabric.engine.lifecycle.sql.fence import STANDING

END_PARKED_MEMBERS: Final[LiteralString] = (
    """
-- lifecycle.end_parked_members
WITH seen AS (        -- whom no backlog lists, passing over rows in use
    SELECT"""
    + STANDING
    + """
      FROM ff.exec_core e
     WHERE e.blocking_reason = 'paused_by_flow_cancel'
       AND NOT EXISTS (SELECT FROM ff.cancel_backlog_member m
                        WHERE (m.partition_key, m.execution_id) = (e.partition_key, e.execution_id))
     LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), ending AS (
    SELECT seen.*, 'cancelled' AS outcome, NULL::text AS failure_reason,
           NULL::text AS failure_category, NULL::text AS failure_detail, NULL::bytea AS result,
           coalesce(f.cancel_reason, 'flow_cancelled') AS cancellation_reason,
           'cancel_flow' AS cancelled_by, true AS rotates, 'revoked' AS lease_event,
           'cancelled' AS lease_reason
      FROM seen LEFT JOIN ff.flow_core f USING (partition_key, flow_id)
), """
    + TERMINALIZE
    + """
SELECT count(*) AS moved FROM ended WHERE """
    + RUNG
)


async def end_parked_members(conn: Connection, limit: int) -> int:
    """Cancel at most `limit` members that ran when their flow was cancelled and would run again."""
    return (await fetch_one(conn, END_PARKED_MEMBERS, Moved, limit=limit)).moved
