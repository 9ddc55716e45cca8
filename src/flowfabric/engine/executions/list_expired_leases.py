"""Leases that have expired and that no sweep has voided yet; nothing changes."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId
from flowfabric.instants import check_instant, epoch_ms, instant
from flowfabric.pages import check_limit

MAX_PAGE: Final = 10_000

LIST_EXPIRED_LEASES: Final[LiteralString] = """
-- executions.list_expired_leases
SELECT l.partition_key, l.execution_id, l.lease_id, l.lease_epoch, l.worker_instance_id,
       l.lease_expires_at_ms, l.attempt_index
  FROM ff.lease l JOIN ff.exec_core e USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 WHERE l.lease_expires_at_ms <= coalesce(%(as_of_ms)s, ff.now_ms())
   AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
   AND (%(after_ms)s::bigint IS NULL
        OR (l.lease_expires_at_ms, l.execution_id) > (%(after_ms)s, %(after_id)s::uuid))
 ORDER BY l.lease_expires_at_ms, l.execution_id LIMIT %(limit)s
"""


class ExpiredLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that its holder did not renew in time."""

    execution_id: ExecutionId
    lease_id: UUID
    lease_epoch: int
    worker_instance_id: str
    expires_at: datetime
    attempt_index: int


class ExpiredLeaseCursor(msgspec.Struct, frozen=True, kw_only=True):
    """Where a page of expired leases ended."""

    expires_at: datetime
    execution_id: ExecutionId


class ExpiredLeasePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some expired leases, and the cursor for the next page if there is one."""

    leases: list[ExpiredLease]
    next_cursor: ExpiredLeaseCursor | None


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    lease_id: UUID
    lease_epoch: int
    worker_instance_id: str
    lease_expires_at_ms: int
    attempt_index: int


async def list_expired_leases(
    conn: Connection,
    *,
    as_of: datetime | None = None,
    after: ExpiredLeaseCursor | None = None,
    limit: int = 1000,
    namespace: str | None = None,
) -> ExpiredLeasePage:
    """At most `limit` leases that had expired at `as_of` (default: now), the longest ago first."""
    check_limit(limit, at_most=MAX_PAGE)
    rows = await fetch_all(
        conn,
        LIST_EXPIRED_LEASES,
        _Row,
        as_of_ms=None if as_of is None else epoch_ms(check_instant(as_of, field="as_of")),
        namespace=namespace,
        after_ms=None
        if after is None
        else epoch_ms(check_instant(after.expires_at, field="after")),
        after_id=None if after is None else after.execution_id.uuid,
        limit=limit + 1,
    )
    leases = [
        ExpiredLease(
            execution_id=ExecutionId(row.partition_key, row.execution_id),
            lease_id=row.lease_id,
            lease_epoch=row.lease_epoch,
            worker_instance_id=row.worker_instance_id,
            expires_at=instant(row.lease_expires_at_ms),
            attempt_index=row.attempt_index,
        )
        for row in rows[:limit]
    ]
    cursor = None
    if len(rows) > limit:
        cursor = ExpiredLeaseCursor(
            expires_at=leases[-1].expires_at, execution_id=leases[-1].execution_id
        )
    return ExpiredLeasePage(leases=leases, next_cursor=cursor)
