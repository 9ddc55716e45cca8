"""runnable(blocked by route) → runnable: a worker that can run the executions has come."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.sql.queue import queued
from flowfabric.engine.lifecycle.sql.wake import wake_lanes

UNBLOCK_ROUTES: Final[LiteralString] = (
    """
-- lifecycle.unblock_routes
WITH served AS (      -- routes that a live worker of their lane can run
    SELECT r.route_id FROM ff.route r
     WHERE r.route_id IN (SELECT e.route_id FROM ff.exec_core e
                           WHERE e.exceptional_state = 'blocked_by_route')
       AND EXISTS (SELECT FROM ff.worker_registry w
                    WHERE w.namespace = r.namespace AND r.lane_id = ANY (w.lanes)
                      AND r.required_capabilities <@ w.capabilities
                      AND w.last_heartbeat_ms + w.liveness_ttl_ms > ff.now_ms())
), found AS (
    SELECT e.partition_key, e.execution_id FROM ff.exec_core e
     WHERE e.exceptional_state = 'blocked_by_route' AND e.route_id IN (SELECT route_id FROM served)
     LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), unblocked AS (
    UPDATE ff.exec_core e
       SET eligibility_state = 'eligible_now', blocking_reason = 'waiting_for_worker',
           blocking_detail = NULL, last_mutation_at_ms = ff.now_ms()
      FROM found WHERE (e.partition_key, e.execution_id) = (found.partition_key, found.execution_id)
 RETURNING e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms,
           e.deadline_at_ms, e.quota_key_id, e.budget_ids, e.eligibility_state
)"""
    + queued("unblocked")
    + f"""
SELECT count(*) AS moved, {wake_lanes("unblocked")} AS lanes FROM unblocked
"""
)


class _Unblocked(msgspec.Struct, frozen=True):
    moved: int
    lanes: int


async def unblock_routes(conn: Connection, limit: int) -> int:
    """At most `limit` executions whose route a live worker serves are claimable; how many."""
    return (await fetch_one(conn, UNBLOCK_ROUTES, _Unblocked, limit=limit)).moved
