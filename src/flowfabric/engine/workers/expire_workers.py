"""Worker processes that went without a word are no longer listed."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

EXPIRE_WORKERS: Final[LiteralString] = """
-- workers.expire_workers
WITH gone AS (        -- no heartbeat for longer than they promised
    SELECT partition_key, namespace, worker_instance_id FROM ff.worker_registry
     WHERE last_heartbeat_ms + liveness_ttl_ms < ff.now_ms()
     LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), swept AS (
    DELETE FROM ff.worker_registry w USING gone
     WHERE (w.partition_key, w.namespace, w.worker_instance_id)
         = (gone.partition_key, gone.namespace, gone.worker_instance_id)
 RETURNING w.partition_key, w.namespace, w.worker_instance_id, w.worker_id
), told AS (
    INSERT INTO ff.worker_registry_event (
           partition_key, namespace, worker_instance_id, event_at_ms, event_kind, worker_id)
    SELECT partition_key, namespace, worker_instance_id, ff.now_ms(), 'ttl_swept', worker_id
      FROM swept
        ON CONFLICT DO NOTHING
)
SELECT count(*) AS moved FROM swept
"""


async def expire_workers(conn: Connection, limit: int) -> int:
    """Forget at most `limit` workers whose heartbeats stopped."""
    return (await fetch_one(conn, EXPIRE_WORKERS, Moved, limit=limit)).moved
