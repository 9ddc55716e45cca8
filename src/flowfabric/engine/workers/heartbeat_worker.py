"""A worker process reports that it is alive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.workers.register_worker import WorkerRefreshed
from flowfabric.ids import check_worker_name, worker_partition
from flowfabric.instants import instant
from flowfabric.policy import milliseconds

HEARTBEAT_WORKER: Final[LiteralString] = """
-- workers.heartbeat_worker
WITH beat AS (        -- only of a worker that has not expired
    UPDATE ff.worker_registry
       SET last_heartbeat_ms = ff.now_ms(), stuck_threads = %(stuck_threads)s::jsonb,
           unclaimed_kinds = %(unclaimed_kinds)s::text[], loop_blocked_ms = %(loop_blocked_ms)s
     WHERE (partition_key, namespace, worker_instance_id)
         = (%(partition_key)s, %(namespace)s, %(worker_instance_id)s)
       AND last_heartbeat_ms + liveness_ttl_ms > ff.now_ms()
 RETURNING partition_key, namespace, worker_instance_id, worker_id, last_heartbeat_ms,
           liveness_ttl_ms
), older_deleted AS ( -- of heartbeats only the newest stays in the history
    DELETE FROM ff.worker_registry_event e USING beat
     WHERE (e.partition_key, e.namespace, e.worker_instance_id, e.event_kind)
         = (beat.partition_key, beat.namespace, beat.worker_instance_id, 'heartbeat')
       AND e.event_at_ms < beat.last_heartbeat_ms
), recorded AS (
    INSERT INTO ff.worker_registry_event (
           partition_key, namespace, worker_instance_id, event_at_ms, event_kind, worker_id)
    SELECT partition_key, namespace, worker_instance_id, last_heartbeat_ms, 'heartbeat', worker_id
      FROM beat
        ON CONFLICT DO NOTHING
)
SELECT last_heartbeat_ms + liveness_ttl_ms AS next_expiry_ms FROM beat
"""


_LONGEST: Final = 2**31 - 1


class WorkerNotRegistered(msgspec.Struct, frozen=True):
    """The registry has no live row of the instance; the worker must register again."""


class _Expiry(msgspec.Struct, frozen=True):
    next_expiry_ms: int


async def heartbeat_worker(
    conn: Connection,
    worker_instance_id: str,
    *,
    namespace: str = "default",
    stuck_threads: Mapping[str, int] | None = None,
    unclaimed_kinds: Sequence[str] = (),
    loop_blocked: float | timedelta = 0,
) -> WorkerRefreshed | WorkerNotRegistered:
    """The instance is alive; `WorkerNotRegistered` if its row was deleted or has expired.

    `stuck_threads` says by kind how many of its threads still run although their attempts are over,
    and `unclaimed_kinds` which kinds it does not claim because of them. `loop_blocked` is how long
    its event loop did not run anything since the last heartbeat, because a handler held it up.
    """
    check_worker_name(worker_instance_id, field="worker_instance_id")
    row = await fetch_maybe(
        conn,
        HEARTBEAT_WORKER,
        _Expiry,
        partition_key=worker_partition(worker_instance_id),
        namespace=namespace,
        worker_instance_id=worker_instance_id,
        stuck_threads=msgspec.json.encode(dict(stuck_threads or {})).decode(),
        unclaimed_kinds=list(unclaimed_kinds),
        loop_blocked_ms=max(0, min(milliseconds(loop_blocked, field="loop_blocked"), _LONGEST)),
    )
    return (
        WorkerNotRegistered()
        if row is None
        else WorkerRefreshed(next_expiry=instant(row.next_expiry_ms))
    )
