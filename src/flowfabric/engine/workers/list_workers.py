"""The registered worker processes of a namespace, page by page."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import Unavailable
from flowfabric.instants import instant
from flowfabric.pages import check_limit

LIST_WORKERS: Final[LiteralString] = """
-- workers.list_workers
WITH used AS (        -- there are few leases: one for each handler that runs
    SELECT worker_instance_id, count(*)::integer AS slots FROM ff.lease GROUP BY worker_instance_id
)
SELECT w.worker_id, w.worker_instance_id, w.lanes, w.capabilities, w.kinds, w.concurrency,
       w.last_heartbeat_ms, w.liveness_ttl_ms, w.registered_at_ms,
       w.stuck_threads::text AS stuck_threads, w.unclaimed_kinds,
       w.loop_blocked_ms,
       w.last_heartbeat_ms + w.liveness_ttl_ms > ff.now_ms() AS alive, w.version, w.host,
       coalesce(used.slots, 0) AS slots_used
  FROM ff.worker_registry w LEFT JOIN used USING (worker_instance_id)
 WHERE w.namespace = %(namespace)s
   AND (%(after)s::text IS NULL OR w.worker_instance_id > %(after)s::text)
 ORDER BY w.worker_instance_id LIMIT %(limit)s
"""


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
    stuck_threads: dict[str, int]
    """By kind: threads that still run although their attempts are over."""
    unclaimed_kinds: list[str]
    """The kinds that the process does not claim because of stuck threads."""
    loop_blocked: timedelta
    """How long the event loop of the process did not run anything before its last heartbeat."""
    alive: bool
    version: str
    host: str
    slots_used: int
    """Executions that the process holds, those that it has claimed ahead included."""


class WorkerPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some workers, and the cursor for the next page if there is one."""

    workers: list[WorkerEntry]
    next_cursor: str | None


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
    stuck_threads: str
    unclaimed_kinds: list[str]
    loop_blocked_ms: int
    alive: bool
    version: str
    host: str
    slots_used: int


async def list_workers(
    conn: Connection, namespace: str, *, after: str | None = None, limit: int = 1000
) -> WorkerPage:
    """At most `limit` workers after the instance id `after`, in the order of instance ids."""
    if not namespace:
        raise Unavailable("list_workers", "a namespace must be given")
    check_limit(limit)
    rows = await fetch_all(
        conn, LIST_WORKERS, _Row, namespace=namespace, after=after, limit=limit + 1
    )
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
            stuck_threads=msgspec.json.decode(row.stuck_threads, type=dict[str, int]),
            unclaimed_kinds=row.unclaimed_kinds,
            loop_blocked=timedelta(milliseconds=row.loop_blocked_ms),
            alive=row.alive,
            version=row.version,
            host=row.host,
            slots_used=row.slots_used,
        )
        for row in rows[:limit]
    ]
    more = len(rows) > limit
    return WorkerPage(workers=workers, next_cursor=workers[-1].worker_instance_id if more else None)
