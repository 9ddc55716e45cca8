"""Worker processes whose heartbeats have stopped are deleted from the registry."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

EXPIRE_WORKERS: Final[LiteralString] = """
-- workers.expire_workers
WITH expired AS (     -- no heartbeat for longer than their time to live
    SELECT partition_key, namespace, worker_instance_id FROM ff.worker_registry
     WHERE last_heartbeat_ms + liveness_ttl_ms < ff.now_ms()
     LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM ff.worker_registry w USING expired
     WHERE (w.partition_key, w.namespace, w.worker_instance_id)
         = (expired.partition_key, expired.namespace, expired.worker_instance_id)
 RETURNING w.partition_key, w.namespace, w.worker_instance_id, w.worker_id
), recorded AS (
    INSERT INTO ff.worker_registry_event (
           partition_key, namespace, worker_instance_id, event_at_ms, event_kind, worker_id)
    SELECT partition_key, namespace, worker_instance_id, ff.now_ms(), 'ttl_swept', worker_id
      FROM deleted
        ON CONFLICT DO NOTHING
)
SELECT count(*) AS moved FROM deleted
"""


async def expire_workers(conn: Connection, limit: int) -> int:
    """Delete at most `limit` workers whose heartbeats have stopped, each with an event."""
    return (await fetch_one(conn, EXPIRE_WORKERS, Moved, limit=limit)).moved
