"""The registry events of the workers of a namespace, newest first."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import Unavailable
from flowfabric.instants import instant
from flowfabric.pages import check_limit
from flowfabric.states import WorkerEventKind

LIST_WORKER_EVENTS: Final[LiteralString] = """
-- workers.list_worker_events
SELECT worker_id, worker_instance_id, event_kind, reason, event_at_ms
  FROM ff.worker_registry_event
 WHERE namespace = %(namespace)s
   AND (%(instance)s::text IS NULL OR worker_instance_id = %(instance)s::text)
 ORDER BY event_at_ms DESC, worker_instance_id, event_kind LIMIT %(limit)s
"""


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a worker process in the registry."""

    worker_id: str
    worker_instance_id: str
    event_kind: WorkerEventKind
    reason: str | None
    at: datetime


class _Row(msgspec.Struct, frozen=True):
    worker_id: str
    worker_instance_id: str
    event_kind: str
    reason: str | None
    event_at_ms: int


async def list_worker_events(
    conn: Connection, namespace: str, *, worker_instance_id: str | None = None, limit: int = 100
) -> list[WorkerEvent]:
    """At most `limit` events, the newest first, of one process or of all in the namespace."""
    if not namespace:
        raise Unavailable("list_worker_events", "a namespace must be given")
    check_limit(limit)
    rows = await fetch_all(
        conn,
        LIST_WORKER_EVENTS,
        _Row,
        namespace=namespace,
        instance=worker_instance_id,
        limit=limit,
    )
    return [
        WorkerEvent(
            worker_id=row.worker_id,
            worker_instance_id=row.worker_instance_id,
            event_kind=WorkerEventKind(row.event_kind),
            reason=row.reason,
            at=instant(row.event_at_ms),
        )
        for row in rows
    ]
