"""terminal → deleted: executions that ended longer ago than the retention of their lane."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.policy import DEFAULT_RETENTION, milliseconds

DELETE_FINISHED: Final[LiteralString] = """
-- retention.delete_finished
WITH old AS (         -- by the retention of each lane; 0 keeps for ever
    SELECT found.partition_key, found.execution_id
      FROM ff.lane_registry l JOIN ff.route r USING (lane_id) CROSS JOIN LATERAL (
           SELECT e.partition_key, e.execution_id FROM ff.exec_core e
            WHERE e.route_id = r.route_id AND e.lifecycle_phase = 'terminal'
              AND NOT (e.compensates AND e.terminal_outcome <> 'success')  -- until it is started
              AND (e.flow_id IS NULL OR EXISTS (  -- members stay while their flow is not settled
                       SELECT FROM ff.settled_flow s
                        WHERE (s.partition_key, s.flow_id) = (e.partition_key, e.flow_id)))
              AND e.terminal_at_ms <= ff.now_ms() - coalesce(l.retention_ms, %(default_ms)s::bigint)
              AND e.created_at_ms <= ff.now_ms() - coalesce(l.retention_ms, %(default_ms)s::bigint)
            ORDER BY e.created_at_ms, e.execution_id LIMIT %(limit)s
              FOR UPDATE SKIP LOCKED) AS found
     WHERE l.retention_ms IS DISTINCT FROM 0
     LIMIT %(limit)s
), batch AS (
    SELECT array_agg(partition_key) AS partitions, array_agg(execution_id) AS ids FROM old
)
SELECT ff.delete_executions(partitions, ids) AS moved FROM batch
"""


async def delete_finished(conn: Connection, limit: int) -> int:
    """Delete at most `limit` executions that ended longer ago than the retention of their lane."""
    return (
        await fetch_one(
            conn, DELETE_FINISHED, Moved, limit=limit, default_ms=milliseconds(DEFAULT_RETENTION)
        )
    ).moved
