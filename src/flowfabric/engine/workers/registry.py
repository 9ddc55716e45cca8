"""Which worker processes live: registered at start, refreshed by heartbeat, gone when they stop."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_all, fetch_maybe, fetch_one
from flowfabric.errors import Unavailable, invalid_input
from flowfabric.ids import check_lane, check_text, check_worker_name, worker_partition
from flowfabric.instants import instant
from flowfabric.policy import check_capabilities, milliseconds

REGISTER: Final[LiteralString] = """
-- workers.register_worker
WITH known AS (       -- a live row of this instance
    SELECT worker_id FROM ff.worker_registry
     WHERE (partition_key, namespace, worker_instance_id)
         = (%(partition_key)s, %(namespace)s, %(worker_instance_id)s)
       AND last_heartbeat_ms + liveness_ttl_ms > ff.now_ms()
), stored AS (
    INSERT INTO ff.worker_registry AS w (
           partition_key, namespace, worker_instance_id, worker_id, lanes, capabilities, kinds,
           concurrency, last_heartbeat_ms, liveness_ttl_ms, registered_at_ms)
    SELECT %(partition_key)s, %(namespace)s, %(worker_instance_id)s, %(worker_id)s,
           %(lanes)s::text[], %(capabilities)s::text[], %(kinds)s::text[], %(concurrency)s,
           ff.now_ms(), %(ttl_ms)s,
           ff.now_ms()
     WHERE NOT EXISTS (SELECT FROM known WHERE worker_id <> %(worker_id)s)
        ON CONFLICT (partition_key, namespace, worker_instance_id) DO UPDATE
       SET worker_id = EXCLUDED.worker_id, lanes = EXCLUDED.lanes,
           capabilities = EXCLUDED.capabilities, kinds = EXCLUDED.kinds,
           concurrency = EXCLUDED.concurrency, last_heartbeat_ms = EXCLUDED.last_heartbeat_ms,
           liveness_ttl_ms = EXCLUDED.liveness_ttl_ms,
           registered_at_ms = CASE WHEN w.last_heartbeat_ms + w.liveness_ttl_ms > ff.now_ms()
                                   THEN w.registered_at_ms ELSE EXCLUDED.registered_at_ms END
 RETURNING 1
)
SELECT (SELECT worker_id FROM known) AS known_as, EXISTS (SELECT FROM stored) AS stored
"""

HEARTBEAT: Final[LiteralString] = """
-- workers.heartbeat_worker
UPDATE ff.worker_registry SET last_heartbeat_ms = ff.now_ms()
 WHERE (partition_key, namespace, worker_instance_id)
     = (%(partition_key)s, %(namespace)s, %(worker_instance_id)s)
   AND last_heartbeat_ms + liveness_ttl_ms > ff.now_ms()
RETURNING last_heartbeat_ms + liveness_ttl_ms AS next_expiry_ms
"""

MARK_DEAD: Final[LiteralString] = """
-- workers.mark_worker_dead
DELETE FROM ff.worker_registry
 WHERE (partition_key, namespace, worker_instance_id)
     = (%(partition_key)s, %(namespace)s, %(worker_instance_id)s)
RETURNING worker_id
"""

LIST: Final[LiteralString] = """
-- workers.list_workers
SELECT worker_id, worker_instance_id, lanes, capabilities, kinds, concurrency, last_heartbeat_ms,
       liveness_ttl_ms, registered_at_ms,
       last_heartbeat_ms + liveness_ttl_ms > ff.now_ms() AS alive
  FROM ff.worker_registry
 WHERE namespace = %(namespace)s
   AND (%(after)s::text IS NULL OR worker_instance_id > %(after)s::text)
 ORDER BY worker_instance_id LIMIT %(limit)s
"""

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
 RETURNING 1
)
SELECT count(*) AS moved FROM swept
"""


class Registered(msgspec.Struct, frozen=True):
    """The instance was not known, or its row had lapsed."""


class Refreshed(msgspec.Struct, frozen=True):
    """The instance was known and lives on."""

    next_expiry: datetime | None = None


class Marked(msgspec.Struct, frozen=True):
    """The instance is no longer registered; its leases lapse by themselves."""


class NotRegistered(msgspec.Struct, frozen=True):
    """No live row; the worker must register again."""


class WorkerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process."""

    worker_id: str
    worker_instance_id: str
    lanes: list[str]
    capabilities: list[str]
    kinds: list[str]
    concurrency: int
    last_heartbeat_at: datetime
    liveness_ttl: timedelta
    registered_at: datetime
    alive: bool


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some workers, and the cursor for the next page if there is one."""

    workers: list[WorkerEntry]
    next_cursor: str | None


class _Known(msgspec.Struct, frozen=True):
    known_as: str | None
    stored: bool


class _Expiry(msgspec.Struct, frozen=True):
    next_expiry_ms: int


class _Gone(msgspec.Struct, frozen=True):
    worker_id: str


class _Row(msgspec.Struct, frozen=True):
    worker_id: str
    worker_instance_id: str
    lanes: list[str]
    capabilities: list[str]
    kinds: list[str]
    concurrency: int
    last_heartbeat_ms: int
    liveness_ttl_ms: int
    registered_at_ms: int
    alive: bool


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
) -> Registered | Refreshed:
    """The instance is listed with what it offers, until its heartbeats stop.

    Raises `ValidationError(invalid_input)` when a live instance of that name is another
    worker's.
    """
    check_worker_name(worker_id, field="worker_id")
    check_worker_name(worker_instance_id, field="worker_instance_id")
    row = await fetch_one(
        conn,
        REGISTER,
        _Known,
        partition_key=worker_partition(worker_instance_id),
        namespace=namespace,
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lanes=sorted({check_lane(lane) for lane in lanes}),
        capabilities=check_capabilities(capabilities, side="worker"),
        kinds=sorted(kinds),
        concurrency=concurrency,
        ttl_ms=milliseconds(liveness_ttl),
    )
    if not row.stored:
        raise invalid_input(
            "worker_instance_id", worker_instance_id, f"reassigned: it belongs to {row.known_as!r}"
        )
    return Registered() if row.known_as is None else Refreshed()


async def heartbeat_worker(
    conn: Connection, worker_instance_id: str, *, namespace: str = "default"
) -> Refreshed | NotRegistered:
    """The instance lives; `NotRegistered` when its row is gone or had lapsed."""
    row = await fetch_maybe(
        conn,
        HEARTBEAT,
        _Expiry,
        partition_key=worker_partition(worker_instance_id),
        namespace=namespace,
        worker_instance_id=worker_instance_id,
    )
    return NotRegistered() if row is None else Refreshed(next_expiry=instant(row.next_expiry_ms))


async def mark_worker_dead(
    conn: Connection, worker_instance_id: str, *, reason: str, namespace: str = "default"
) -> Marked | NotRegistered:
    """The instance is no longer listed; its leases are left to lapse."""
    check_text(reason, field="reason")
    if not reason.isprintable():
        raise invalid_input("reason", reason, "must not hold control characters")
    row = await fetch_maybe(
        conn,
        MARK_DEAD,
        _Gone,
        partition_key=worker_partition(worker_instance_id),
        namespace=namespace,
        worker_instance_id=worker_instance_id,
    )
    return NotRegistered() if row is None else Marked()


async def list_workers(
    conn: Connection, namespace: str, *, after: str | None = None, limit: int = 1000
) -> WorkerPage:
    """The workers of a namespace in the order of their instance ids."""
    if not namespace:
        raise Unavailable("list_workers", "a namespace must be given")
    if not 1 <= limit <= 1000:
        raise invalid_input("limit", limit, "must be 1 to 1000")
    rows = await fetch_all(conn, LIST, _Row, namespace=namespace, after=after, limit=limit)
    workers = [
        WorkerEntry(
            worker_id=row.worker_id,
            worker_instance_id=row.worker_instance_id,
            lanes=row.lanes,
            capabilities=row.capabilities,
            kinds=row.kinds,
            concurrency=row.concurrency,
            last_heartbeat_at=instant(row.last_heartbeat_ms),
            liveness_ttl=timedelta(milliseconds=row.liveness_ttl_ms),
            registered_at=instant(row.registered_at_ms),
            alive=row.alive,
        )
        for row in rows
    ]
    full = len(workers) == limit
    return WorkerPage(workers=workers, next_cursor=workers[-1].worker_instance_id if full else None)


async def expire_workers(conn: Connection, limit: int) -> int:
    """Forget at most `limit` workers whose heartbeats stopped."""
    return (await fetch_one(conn, EXPIRE_WORKERS, Moved, limit=limit)).moved
