"""A session holds the lock of its worker process: it is held as long as the process lives.

The lock is an advisory lock of the session. Postgres releases the lock when the session ends, which
is at once when the process is killed: the kernel closes its sockets. The lock is shared: a process
that reconnects gets the lock although its former session has not ended yet, and a second process of
the same name is not refused.
"""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.ids import check_worker_name, worker_partition

# The key is a hash of 64 bits. Two names with one key make a dead worker look alive, and its leases
# last until they expire. A pooler hands out a process id of its own: behind a pooler the lock would
# belong to a session that other clients use, so none is taken there.
HOLD_WORKER_LOCK: Final[LiteralString] = """
-- workers.hold_worker_lock
WITH named AS (
    SELECT hashtextextended('flowfabric.worker.' || %(worker_instance_id)s, 0) AS key
), locked AS MATERIALIZED (   -- before the row says so
    SELECT key, CASE WHEN pg_backend_pid() = %(server_pid)s::integer
                     THEN pg_try_advisory_lock_shared(key) ELSE false END AS held
      FROM named
), stored AS (
    UPDATE ff.worker_registry w
       SET liveness_lock = CASE WHEN locked.held THEN locked.key END, lock_missed_at_ms = NULL
      FROM locked
     WHERE (w.partition_key, w.namespace, w.worker_instance_id)
         = (%(partition_key)s, %(namespace)s, %(worker_instance_id)s)
 RETURNING 1
)
SELECT locked.held, EXISTS (SELECT FROM stored) AS registered,
       EXISTS (SELECT FROM pg_locks l
                WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                  AND (l.classid::bigint << 32) | l.objid::bigint = locked.key
                  AND l.database = (SELECT d.oid FROM pg_database d
                                     WHERE d.datname = current_database())
                  AND l.pid <> pg_backend_pid()) AS shared
  FROM locked
"""


class WorkerLock(msgspec.Struct, frozen=True):
    """What came of `hold_worker_lock`."""

    held: bool
    """False behind a pooler: the leases of the worker last until they expire."""
    registered: bool
    """False if the registry has no row of the instance; the worker must register again."""
    shared: bool
    """Another session holds the lock too: the former one of this process, or another process."""


async def hold_worker_lock(
    conn: Connection, worker_instance_id: str, *, namespace: str = "default"
) -> WorkerLock:
    """The session of `conn` holds the lock of the instance until it ends, and the registry says so.

    From now on `recover_dead_workers` voids the leases of the instance soon after the session has
    ended; another call on another session prevents that.
    """
    check_worker_name(worker_instance_id, field="worker_instance_id")
    return await fetch_one(
        conn,
        HOLD_WORKER_LOCK,
        WorkerLock,
        partition_key=worker_partition(worker_instance_id),
        namespace=namespace,
        worker_instance_id=worker_instance_id,
        server_pid=conn.get_server_pid(),
    )
