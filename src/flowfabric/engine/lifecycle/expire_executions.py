"""any non-terminal → terminal(expired): executions whose deadline has passed."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.sql.end import RUNG, TERMINALIZE
from flowfabric.engine.lifecycle.sql.fence import STANDING

EXPIRE_EXECUTIONS: Final[LiteralString] = (
    """
-- lifecycle.expire_executions
WITH seen AS (        -- the longest overdue first, passing over rows in use
    SELECT"""
    + STANDING
    + """
      FROM ff.exec_core e
     WHERE e.deadline_at_ms <= ff.now_ms() AND e.lifecycle_phase <> 'terminal'
     ORDER BY e.deadline_at_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), ending AS (
    SELECT seen.*, 'expired' AS outcome, 'execution_deadline' AS failure_reason,
           'timeout' AS failure_category, NULL::text AS failure_detail, NULL::bytea AS result,
           NULL::text AS cancellation_reason, NULL::text AS cancelled_by, true AS rotates,
           'expired' AS lease_event, NULL::text AS lease_reason
      FROM seen
), """
    + TERMINALIZE
    + """
SELECT count(*) AS moved FROM ended WHERE """
    + RUNG
)


async def expire_executions(conn: Connection, limit: int) -> int:
    """End at most `limit` executions whose deadline has passed, whatever they are doing."""
    return (await fetch_one(conn, EXPIRE_EXECUTIONS, Moved, limit=limit)).moved
