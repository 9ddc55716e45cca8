"""A worker process is in the registry with what it offers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.errors import invalid_input
from flowfabric.ids import check_lane, check_name, check_worker_name, worker_partition
from flowfabric.policy import check_capabilities, milliseconds

REGISTER_WORKER: Final[LiteralString] = """
-- workers.register_worker
WITH known AS (       -- a live row of this instance
    SELECT worker_id FROM ff.worker_registry
     WHERE (partition_key, namespace, worker_instance_id)
         = (%(partition_key)s, %(namespace)s, %(worker_instance_id)s)
       AND last_heartbeat_ms + liveness_ttl_ms > ff.now_ms()
), stored AS (
    INSERT INTO ff.worker_registry AS w (
           partition_key, namespace, worker_instance_id, worker_id, lanes, capabilities, kinds,
           concurrency, last_heartbeat_ms, liveness_ttl_ms, registered_at_ms, version, host)
    SELECT %(partition_key)s, %(namespace)s, %(worker_instance_id)s, %(worker_id)s,
           %(lanes)s::text[], %(capabilities)s::text[], %(kinds)s::text[], %(concurrency)s,
           ff.now_ms(), %(ttl_ms)s, ff.now_ms(), %(version)s, %(host)s
     WHERE NOT EXISTS (SELECT FROM known WHERE worker_id <> %(worker_id)s)
        ON CONFLICT (partition_key, namespace, worker_instance_id) DO UPDATE
       SET worker_id = EXCLUDED.worker_id, lanes = EXCLUDED.lanes,
           capabilities = EXCLUDED.capabilities, kinds = EXCLUDED.kinds,
           concurrency = EXCLUDED.concurrency, last_heartbeat_ms = EXCLUDED.last_heartbeat_ms,
           liveness_ttl_ms = EXCLUDED.liveness_ttl_ms, stuck_threads = EXCLUDED.stuck_threads,
           unclaimed_kinds = EXCLUDED.unclaimed_kinds,
           loop_blocked_ms = EXCLUDED.loop_blocked_ms, liveness_lock = NULL,
           version = EXCLUDED.version, host = EXCLUDED.host,
           lock_missed_at_ms = NULL,
           registered_at_ms = CASE WHEN w.last_heartbeat_ms + w.liveness_ttl_ms > ff.now_ms()
                                   THEN w.registered_at_ms ELSE EXCLUDED.registered_at_ms END
     WHERE w.worker_id = EXCLUDED.worker_id
        OR w.last_heartbeat_ms + w.liveness_ttl_ms <= ff.now_ms()
 RETURNING 1
), recorded AS (
    INSERT INTO ff.worker_registry_event (
           partition_key, namespace, worker_instance_id, event_at_ms, event_kind, worker_id)
    SELECT %(partition_key)s, %(namespace)s, %(worker_instance_id)s, ff.now_ms(), 'registered',
           %(worker_id)s
      FROM stored
        ON CONFLICT DO NOTHING
)
SELECT (SELECT worker_id FROM known) AS known_as, EXISTS (SELECT FROM stored) AS stored
"""


class WorkerRegistered(msgspec.Struct, frozen=True):
    """The instance was not registered before, or its row had expired."""


class WorkerRefreshed(msgspec.Struct, frozen=True):
    """The instance was registered before and stays so."""

    next_expiry: datetime | None = None


class _Known(msgspec.Struct, frozen=True):
    known_as: str | None
    stored: bool


async def register_worker(
    conn: Connection,
    *,
    worker_id: str,
    worker_instance_id: str,
    lanes: Sequence[str],
    capabilities: Sequence[str] = (),
    kinds: Sequence[str] = (),
    concurrency: int = 1,
    liveness_ttl: float | timedelta,
    namespace: str = "default",
    version: str = "",
    host: str = "",
) -> WorkerRegistered | WorkerRefreshed:
    """The instance is registered with what it offers, until its heartbeats stop.

    Its leases last until they expire, unless `hold_worker_lock` follows. `version` and `host` are
    shown to operators.
    Raises `ValidationError(invalid_input)` if a live instance of that name belongs to another
    worker.
    """
    check_worker_name(worker_id, field="worker_id")
    check_worker_name(worker_instance_id, field="worker_instance_id")
    check_name(namespace, field="namespace")
    if concurrency < 1:
        raise invalid_input("concurrency", concurrency, "must be at least 1")
    ttl_ms = milliseconds(liveness_ttl, field="liveness_ttl")
    if ttl_ms < 1:
        raise invalid_input("liveness_ttl", liveness_ttl, "must be positive")
    row = await fetch_one(
        conn,
        REGISTER_WORKER,
        _Known,
        partition_key=worker_partition(worker_instance_id),
        namespace=namespace,
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lanes=sorted({check_lane(lane) for lane in lanes}),
        capabilities=check_capabilities(capabilities, side="worker"),
        kinds=sorted(kinds),
        concurrency=concurrency,
        ttl_ms=ttl_ms,
        version=_shown(version, field="version"),
        host=_shown(host, field="host"),
    )
    if not row.stored:
        raise invalid_input(
            "worker_instance_id",
            worker_instance_id,
            f"instance_id reassigned: it belongs to {row.known_as or 'another worker'!r}",
        )
    return WorkerRegistered() if row.known_as is None else WorkerRefreshed()


def _shown(text: str, *, field: str) -> str:
    return check_name(text, field=field) if text else ""
