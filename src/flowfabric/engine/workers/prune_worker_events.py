"""Old worker events are deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.policy import milliseconds

KEPT: Final = timedelta(days=7)

PRUNE_WORKER_EVENTS: Final[LiteralString] = """
-- workers.prune_worker_events
WITH old AS (
    SELECT partition_key, namespace, worker_instance_id, event_at_ms, event_kind
      FROM ff.worker_registry_event WHERE event_at_ms <= ff.now_ms() - %(kept_ms)s::bigint
     ORDER BY event_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM ff.worker_registry_event e USING old
     WHERE (e.partition_key, e.namespace, e.worker_instance_id, e.event_at_ms, e.event_kind)
         = (old.partition_key, old.namespace, old.worker_instance_id, old.event_at_ms,
            old.event_kind)
 RETURNING 1
)
SELECT count(*) AS moved FROM deleted
"""


async def prune_worker_events(conn: Connection, limit: int) -> int:
    """Delete at most `limit` events that are older than `KEPT`."""
    return (
        await fetch_one(conn, PRUNE_WORKER_EVENTS, Moved, limit=limit, kept_ms=milliseconds(KEPT))
    ).moved
