"""terminal → deleted: a batch of ended executions of a lane, by age and filter."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.engine.retention.trim import MAX_BATCH, Trim, parameters
from flowfabric.pages import check_limit
from flowfabric.policy import milliseconds
from flowfabric.states import OperatorEventType

OLD_OF_LANE: Final[LiteralString] = """WITH oldest AS (     -- of each route, then of all routes
    SELECT found.partition_key, found.execution_id
      FROM ff.route r CROSS JOIN LATERAL (
           SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
            WHERE e.route_id = r.route_id AND e.lifecycle_phase = 'terminal'
              AND NOT (e.compensates AND e.terminal_outcome <> 'success')  -- until it is started
              AND (e.flow_id IS NULL OR EXISTS (  -- members stay while their flow is not settled
                       SELECT FROM ff.settled_flow s
                        WHERE (s.partition_key, s.flow_id) = (e.partition_key, e.flow_id)))
              AND e.terminal_at_ms <= coalesce(%(now_ms)s, ff.now_ms()) - %(retention_ms)s::bigint
              AND (%(partition_key)s::smallint IS NULL OR e.partition_key = %(partition_key)s)
              AND (%(tag_key)s::text IS NULL OR e.tags ->> %(tag_key)s = %(tag_value)s::text)
              AND e.created_at_ms <= coalesce(%(now_ms)s, ff.now_ms()) - %(retention_ms)s::bigint
            ORDER BY e.created_at_ms, e.execution_id LIMIT %(limit)s) AS found
     WHERE r.lane_id = %(lane_id)s
       AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
     ORDER BY found.created_at_ms LIMIT %(limit)s
), old AS (           -- passing over rows in use, such as by a replay
    SELECT e.partition_key, e.execution_id
      FROM ff.exec_core e JOIN oldest USING (partition_key, execution_id)
     WHERE e.lifecycle_phase = 'terminal'
       FOR UPDATE OF e SKIP LOCKED
)"""

TRIM_RETENTION: Final[LiteralString] = (
    """
-- retention.trim_retention
"""
    + OLD_OF_LANE
    + """, batch AS (
    SELECT array_agg(partition_key) AS partitions, array_agg(execution_id) AS ids FROM old
)
SELECT ff.delete_executions(partitions, ids) AS moved FROM batch
"""
)


async def trim_retention(
    conn: Connection,
    trim: Trim,
    *,
    batch_size: int = 500,
    now: datetime | None = None,
    actor: str = DEFAULT_ACTOR,
) -> int:
    """Delete at most `batch_size` executions, and answer how many; needs a transaction.

    The caller repeats the call while a batch is full. A batch that deleted executions writes an
    operator event.
    """
    check_actor(actor)
    check_limit(batch_size, at_most=MAX_BATCH, field="batch_size")
    deleted = await fetch_one(
        conn, TRIM_RETENTION, Moved, limit=batch_size, **parameters(trim, now)
    )
    if deleted.moved:
        await operator_event(
            conn,
            OperatorEventType.RETENTION_TRIMMED,
            actor=actor,
            reason=None,
            lane_id=trim.lane_id,
            retention_ms=milliseconds(trim.retention),
            deleted=deleted.moved,
        )
    return deleted.moved
