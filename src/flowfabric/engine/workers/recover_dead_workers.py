"""Workers whose sessions have ended: their leases are voided before they expire.

A worker that `hold_worker_lock` has registered is dead if two looks, at least `APART_MS` apart,
find its lock not held. The first look is stored in the registry, so that it does not matter which
process looks again.
"""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.expire_leases_of_dead import (
    expire_leases_of_dead,
)

APART_MS: Final = 2_000
"""A worker that reconnects within this time loses no lease."""
DISCONNECTED: Final = "disconnected"
"""The reason of a process that was deleted from the registry because its session had ended."""

DEAD_WORKERS_DUE: Final[LiteralString] = """
-- workers.dead_workers_due
SELECT EXISTS (SELECT FROM ff.worker_liveness
                WHERE CASE WHEN connected THEN lock_missed_at_ms IS NOT NULL
                           ELSE coalesce(lock_missed_at_ms, 0)
                                <= ff.now_ms() - %(apart_ms)s::bigint END) AS due
"""

HOLDS_A_LEASE: Final[LiteralString] = """
           SELECT FROM ff.lease l JOIN ff.exec_core e USING (partition_key, execution_id)
             JOIN ff.route r ON r.route_id = e.route_id
            WHERE r.namespace = w.namespace AND l.worker_instance_id = w.worker_instance_id"""
"""The leases of a worker `w`."""

RECOVER_DEAD_WORKERS: Final[LiteralString] = f"""
-- workers.recover_dead_workers
WITH seen AS (        -- the locks as they are now, with the rows locked
    SELECT w.partition_key, w.namespace, w.worker_instance_id, l.connected, l.lock_missed_at_ms
      FROM ff.worker_liveness l
      JOIN ff.worker_registry w USING (partition_key, namespace, worker_instance_id)
     WHERE CASE WHEN l.connected THEN l.lock_missed_at_ms IS NOT NULL
                ELSE coalesce(l.lock_missed_at_ms, 0) <= ff.now_ms() - %(apart_ms)s::bigint END
     LIMIT %(limit)s FOR UPDATE OF w SKIP LOCKED
), noted AS (         -- missed for the first time, or held again
    UPDATE ff.worker_registry w
       SET lock_missed_at_ms = CASE WHEN seen.connected THEN NULL ELSE ff.now_ms() END
      FROM seen
     WHERE (w.partition_key, w.namespace, w.worker_instance_id)
         = (seen.partition_key, seen.namespace, seen.worker_instance_id)
       AND (seen.connected OR seen.lock_missed_at_ms IS NULL)
 RETURNING 1
), deleted AS (       -- missed twice, and without leases now
    DELETE FROM ff.worker_registry w USING seen
     WHERE (w.partition_key, w.namespace, w.worker_instance_id)
         = (seen.partition_key, seen.namespace, seen.worker_instance_id)
       AND NOT seen.connected AND seen.lock_missed_at_ms IS NOT NULL
       AND NOT EXISTS ({HOLDS_A_LEASE})
 RETURNING w.partition_key, w.namespace, w.worker_instance_id, w.worker_id
), recorded AS (
    INSERT INTO ff.worker_registry_event (
           partition_key, namespace, worker_instance_id, event_at_ms, event_kind, worker_id, reason)
    SELECT partition_key, namespace, worker_instance_id, ff.now_ms(), 'marked_dead', worker_id,
           %(reason)s
      FROM deleted
        ON CONFLICT DO NOTHING
)
SELECT (SELECT count(*) FROM noted) + (SELECT count(*) FROM deleted) AS moved
"""


class _Due(msgspec.Struct, frozen=True):
    due: bool


async def dead_workers_due(conn: Connection) -> bool:
    """Has a lock been released, or taken again, or is a second look due? Writes nothing."""
    return (await fetch_one(conn, DEAD_WORKERS_DUE, _Due, apart_ms=APART_MS)).due


async def recover_dead_workers(conn: Connection, limit: int) -> int:
    """Void at most `limit` leases of dead workers, and store which locks are missed; a transaction.

    A worker is deleted from the registry, with an event, once none of its leases is left. A worker
    that only lost its connection registers again when it reconnects. Returns how many leases were
    voided and how many rows of the registry were changed.
    """
    # Executions are locked before the registry, as everywhere.
    voided = await expire_leases_of_dead(conn, limit, apart_ms=APART_MS)
    noted = await fetch_one(
        conn,
        RECOVER_DEAD_WORKERS,
        Moved,
        limit=limit,
        apart_ms=APART_MS,
        reason=DISCONNECTED,
    )
    return voided + noted.moved
