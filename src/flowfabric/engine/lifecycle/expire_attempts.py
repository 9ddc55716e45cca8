"""active → runnable or terminal(expired): attempts that take longer than their policy allows."""

from __future__ import annotations

import logging
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.counters import ATTEMPT_OUTCOMES
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.attempt_log import AttemptRecord, log_attempt
from flowfabric.engine.lifecycle.signal_holders import signal_holders
from flowfabric.engine.lifecycle.sql.end import end
from flowfabric.engine.lifecycle.sql.fence import DUE_NOW, LOCK_FREE, LOCKED_COLUMNS, due_leases
from flowfabric.engine.lifecycle.sql.requeue import requeue
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant

EXPIRE_ATTEMPTS: Final[LiteralString] = (
    """
-- lifecycle.expire_attempts
"""
    + due_leases("attempt_timeout_at_ms")
    + f""", seen AS (        -- the longest overdue first, passing over rows in use
    SELECT{LOCKED_COLUMNS}, e.retry_count
      {DUE_NOW}
     WHERE l.attempt_timeout_at_ms <= ff.now_ms()
     ORDER BY l.attempt_timeout_at_ms LIMIT %(limit)s {LOCK_FREE}
), overdue AS (       -- each with what its policy says
    SELECT seen.*, ff.retries_left(body.policy, seen.retry_count) AS retry_allowed,
           ff.retry_delay_ms(body.policy, seen.retry_count, seen.execution_id) AS wait_ms,
           seen.attempt_index + 1 - seen.retry_count + ff.max_retries(body.policy) AS max_attempts
      FROM seen JOIN ff.exec_body body USING (partition_key, execution_id)
)"""
    + end(
        "overdue",
        where="NOT retry_allowed",
        outcome="'expired'",
        failure_reason="'attempt_timeout'",
        failure_category="'timeout'",
        lease_event="'expired'",
    )
    + requeue(
        "overdue",
        where="retry_allowed",
        until_ms="CASE WHEN wait_ms > 0 THEN ff.now_ms() + wait_ms END",
        waiting_for="'waiting_for_retry_backoff'",
        attempt_outcome="'retry'",
        next_attempt_state="'pending_retry_attempt'",
        counts_as_retry="true",
        failure_reason="'attempt_timeout'",
        failure_category="'timeout'",
        lease_event="'expired'",
    )
    + """
SELECT moved.*, route.execution_kind, route.lane_id
  FROM (SELECT partition_key, execution_id, route_id, flow_id, attempt_index, max_attempts,
               worker_instance_id, attempt_started_at_ms, true AS has_ended,
               NULL::bigint AS until_ms, ff.now_ms() AS now_ms
          FROM ended
         UNION ALL
        SELECT partition_key, execution_id, route_id, flow_id, attempt_index, max_attempts,
               worker_instance_id, attempt_started_at_ms, false, until_ms, ff.now_ms()
          FROM requeued) AS moved
  JOIN ff.route route USING (route_id)
"""
)


class _Expired(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    route_id: int
    flow_id: UUID | None
    attempt_index: int
    max_attempts: int
    worker_instance_id: str
    attempt_started_at_ms: int
    has_ended: bool
    until_ms: int | None
    now_ms: int
    execution_kind: str
    lane_id: str


async def expire_attempts(conn: Connection, limit: int) -> int:
    """End at most `limit` attempts that have timed out; retried while retries are left.

    Renewing the lease does not extend an attempt: its timeout counts from the claim.
    """
    expired = await fetch_all(conn, EXPIRE_ATTEMPTS, _Expired, limit=limit)
    signal_holders([row.worker_instance_id for row in expired])
    ATTEMPT_OUTCOMES.add_all((row.lane_id, "timeout") for row in expired)
    for row in expired:
        _log(row)
    return len(expired)


def _log(row: _Expired) -> None:
    record = AttemptRecord(
        event="attempt_timed_out",
        execution_id=ExecutionId(row.partition_key, row.execution_id),
        kind=row.execution_kind,
        attempt_index=row.attempt_index,
        flow_id=row.flow_id,
        max_attempts=row.max_attempts,
        worker=row.worker_instance_id,
        error="attempt_timeout",
        category="timeout",
        next_try_at=instant(row.until_ms),
    )
    log_attempt(
        logging.ERROR if row.has_ended else logging.WARNING,
        "%s timed out after %.3g s on worker %s; %s",
        record.attempt,
        (row.now_ms - row.attempt_started_at_ms) / 1000,
        row.worker_instance_id,
        "the execution has expired" if row.has_ended else f"next try {record.next_try}",
        record=record,
    )
