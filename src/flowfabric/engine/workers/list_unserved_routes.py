"""Work that waits although no live worker can run it."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import check_name
from flowfabric.instants import instant
from flowfabric.pages import check_limit

COUNTED: Final = 10_000
"""Executions of a route that are counted at most."""

LIST_UNSERVED_ROUTES: Final[LiteralString] = """
-- workers.list_unserved_routes
WITH alive AS MATERIALIZED (
    SELECT namespace, lanes, kinds, capabilities FROM ff.worker_registry
     WHERE last_heartbeat_ms + liveness_ttl_ms > ff.now_ms()
), unserved AS MATERIALIZED (
    SELECT r.* FROM ff.route r
     WHERE (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
       AND NOT EXISTS (SELECT FROM alive w
                        WHERE w.namespace = r.namespace AND r.lane_id = ANY (w.lanes)
                          AND (w.kinds = '{}' OR r.execution_kind = ANY (w.kinds))
                          AND r.required_capabilities <@ w.capabilities)
)
SELECT r.namespace, r.lane_id, r.execution_kind, r.required_capabilities,
       ARRAY(SELECT unnest(r.required_capabilities)
             EXCEPT
             SELECT unnest(w.capabilities) FROM alive w
              WHERE w.namespace = r.namespace AND r.lane_id = ANY (w.lanes))
           AS missing_capabilities,
       found.waiting, found.since_ms
  FROM unserved r CROSS JOIN LATERAL (
        SELECT count(*)::integer AS waiting, min(created_at_ms) AS since_ms
          FROM ((SELECT q.created_at_ms FROM ff.ready q WHERE q.route_id = r.route_id
                  LIMIT %(counted)s)
                UNION ALL
                (SELECT e.created_at_ms FROM ff.exec_core e
                  WHERE e.exceptional_state = 'blocked_by_route' AND e.route_id = r.route_id
                  ORDER BY e.created_at_ms LIMIT %(counted)s)) AS waiting) AS found
 WHERE found.waiting > 0
 ORDER BY found.since_ms, r.route_id LIMIT %(limit)s
"""


class UnservedRoute(msgspec.Struct, frozen=True, kw_only=True):
    """Executions that no live worker of their namespace can run."""

    namespace: str
    lane_id: str
    execution_kind: str
    required_capabilities: list[str]
    missing_capabilities: list[str]
    """Those that no live worker of the lane offers; none: no worker of the lane runs the kind."""
    waiting: int
    """How many wait for a worker; 10,000 or more if it is 10,000."""
    since: datetime
    """When the oldest of them was created."""


class _Row(msgspec.Struct, frozen=True):
    namespace: str
    lane_id: str
    execution_kind: str
    required_capabilities: list[str]
    missing_capabilities: list[str]
    waiting: int
    since_ms: int


async def list_unserved_routes(
    conn: Connection, *, namespace: str | None = None, limit: int = 100
) -> list[UnservedRoute]:
    """At most `limit` (1000) groups of work that nobody can run, the longest waiting first."""
    check_limit(limit)
    if namespace is not None:
        check_name(namespace, field="namespace")
    rows = await fetch_all(
        conn, LIST_UNSERVED_ROUTES, _Row, namespace=namespace, limit=limit, counted=COUNTED
    )
    return [
        UnservedRoute(
            namespace=row.namespace,
            lane_id=row.lane_id,
            execution_kind=row.execution_kind,
            required_capabilities=row.required_capabilities,
            missing_capabilities=sorted(row.missing_capabilities),
            waiting=min(row.waiting, COUNTED),
            since=instant(row.since_ms),
        )
        for row in rows
    ]
