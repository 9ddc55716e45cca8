"""active → runnable or terminal(failed): expired leases are voided, up to a cap."""

from __future__ import annotations

import logging
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.attempt_log import AttemptRecord, log_attempt
from flowfabric.engine.lifecycle.sql.expire_lease import expire_lease
from flowfabric.engine.lifecycle.sql.fence import DUE_NOW, LOCK_FREE, LOCKED_COLUMNS, due_leases
from flowfabric.ids import ExecutionId

MOVED: Final[LiteralString] = """
SELECT moved.*, route.execution_kind
  FROM (SELECT partition_key, execution_id, route_id, flow_id, attempt_index,
               worker_instance_id, true AS has_ended
          FROM ended
         UNION ALL
        SELECT partition_key, execution_id, route_id, flow_id, attempt_index,
               worker_instance_id, false
          FROM requeued) AS moved
  JOIN ff.route route USING (route_id)
"""
"""The answer of a statement with the CTEs of `expire_lease`: its rows are `VoidedLease`."""

EXPIRE_LEASES: Final[LiteralString] = (
    """
-- lifecycle.expire_leases
"""
    + due_leases("lease_expires_at_ms")
    + f""", seen AS (        -- leases that have expired, passing over rows in use
    SELECT{LOCKED_COLUMNS}, NULL::integer AS given_cap
      {DUE_NOW}
     WHERE l.lease_expires_at_ms <= ff.now_ms()
     ORDER BY l.lease_expires_at_ms LIMIT %(limit)s {LOCK_FREE}
)"""
    + expire_lease("seen")
    + MOVED
)


class VoidedLease(msgspec.Struct, frozen=True):
    """A lease that was voided, and whether its execution has ended."""

    partition_key: int
    execution_id: UUID
    route_id: int
    flow_id: UUID | None
    attempt_index: int
    worker_instance_id: str
    has_ended: bool
    execution_kind: str


async def expire_leases(conn: Connection, limit: int) -> int:
    """Void at most `limit` expired leases; the writes of their holders are refused from now on.

    An execution whose leases were lost more often than its policy allows ends as failed with reason
    `max_reclaims_exceeded`, so that a handler that kills its workers does not run for ever.
    """
    expired = await fetch_all(conn, EXPIRE_LEASES, VoidedLease, limit=limit)
    for row in expired:
        log_expired(
            row,
            "%s: the lease of worker %s expired: its process died, hung or lost the database; %s",
        )
    return len(expired)


def log_expired(row: VoidedLease, message: LiteralString) -> None:
    """Log a voided lease; `message` is about the attempt, its worker and the execution now."""
    record = AttemptRecord(
        event="lease_expired",
        execution_id=ExecutionId(row.partition_key, row.execution_id),
        kind=row.execution_kind,
        attempt_index=row.attempt_index,
        flow_id=row.flow_id,
        worker=row.worker_instance_id,
        error="max_reclaims_exceeded" if row.has_ended else None,
        category="infra_crash" if row.has_ended else None,
    )
    log_attempt(
        logging.ERROR if row.has_ended else logging.WARNING,
        message,
        record.attempt,
        row.worker_instance_id,
        "the execution has failed: max_reclaims_exceeded"
        if row.has_ended
        else "the execution is claimable again",
        record=record,
    )
