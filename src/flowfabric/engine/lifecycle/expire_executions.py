"""any non-terminal → terminal(expired): executions whose deadline has passed."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.signal_holders import MovedLeases, signal_holders
from flowfabric.engine.lifecycle.sql.end import end
from flowfabric.engine.lifecycle.sql.fence import LOCKED_COLUMNS

EXPIRE_EXECUTIONS: Final[LiteralString] = (
    f"""
-- lifecycle.expire_executions
WITH seen AS (        -- the longest overdue first, passing over rows in use
    SELECT{LOCKED_COLUMNS}
      FROM ff.exec_core e
     WHERE e.deadline_at_ms <= ff.now_ms() AND e.lifecycle_phase <> 'terminal'
     ORDER BY e.deadline_at_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)"""
    + end(
        "seen",
        outcome="'expired'",
        failure_reason="'execution_deadline'",
        failure_category="'timeout'",
        lease_event="'expired'",
    )
    + """
SELECT count(*) AS moved,
       coalesce(array_agg(DISTINCT worker_instance_id) FILTER (WHERE leased), '{}') AS holders
  FROM ended
"""
)


async def expire_executions(conn: Connection, limit: int) -> int:
    """End at most `limit` executions whose deadline has passed, whatever their state."""
    expired = await fetch_one(conn, EXPIRE_EXECUTIONS, MovedLeases, limit=limit)
    signal_holders(expired.holders)
    return expired.moved
