"""The routes whose executions no live worker can run, as a condition of a search."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all

UNSERVED_ROUTES: Final[LiteralString] = """
-- executions.unserved_routes
WITH alive AS MATERIALIZED (
    SELECT namespace, lanes, kinds, capabilities FROM ff.worker_registry
     WHERE last_heartbeat_ms + liveness_ttl_ms > ff.now_ms()
)
SELECT r.route_id FROM ff.route r
 WHERE (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
   AND NOT EXISTS (SELECT FROM alive w
                    WHERE w.namespace = r.namespace AND r.lane_id = ANY (w.lanes)
                      AND (w.kinds = '{}' OR r.execution_kind = ANY (w.kinds))
                      AND r.required_capabilities <@ w.capabilities)
"""


class _Row(msgspec.Struct, frozen=True):
    route_id: int


async def unserved_routes(conn: Connection, namespace: str | None) -> list[int]:
    """The ids of those routes, in one namespace or in all."""
    rows = await fetch_all(conn, UNSERVED_ROUTES, _Row, namespace=namespace)
    return [row.route_id for row in rows]
