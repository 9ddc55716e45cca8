"""The stored row of one execution with its route, for the operations that show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.ids import ExecutionId

READ_EXECUTION: Final[LiteralString] = """
-- executions.read_execution
SELECT e.flow_id, r.lane_id, r.namespace, r.execution_kind, r.required_capabilities, e.priority,
       e.lifecycle_phase, e.ownership_state, e.eligibility_state, e.blocking_reason,
       e.terminal_outcome, e.attempt_state, e.public_state, e.blocking_detail, e.attempt_index,
       e.total_attempt_count, e.retry_count, e.lease_reclaim_count,
       e.infra_release_count, e.replay_count, e.lease_epoch, e.lease_id, e.worker_id,
       e.worker_instance_id, e.lease_expires_at_ms, e.created_at_ms,
       e.started_at_ms, e.terminal_at_ms, e.delay_until_ms, e.deadline_at_ms,
       e.last_mutation_at_ms, e.progress_pct, e.progress_message, e.failure_reason,
       e.failure_category, e.cancellation_reason, e.cancelled_by, e.tags, b.idempotency_key,
       b.creator_identity, b.payload_encoding,
       CASE WHEN %(with_body)s::boolean THEN b.payload END AS payload, ended.result,
       coalesce(ended.result_encoding, b.payload_encoding) AS result_encoding,
       ended.failure_detail, s.suspension_id, s.suspended_at_ms, s.timeout_at_ms,
       s.timeout_behavior, s.reason_code, s.awaits_signals
  FROM ff.execution e
  JOIN ff.exec_body b USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
  LEFT JOIN LATERAL (   -- the last attempt that ended
       SELECT a.failure_detail, a.result_encoding,
              CASE WHEN e.terminal_outcome = 'success' THEN a.result END AS result
         FROM ff.attempt a
        WHERE (a.partition_key, a.execution_id) = (e.partition_key, e.execution_id)
          AND (e.terminal_outcome <> 'success' OR a.outcome = 'success')
        ORDER BY a.attempt_index DESC LIMIT 1) AS ended ON %(with_body)s::boolean
  LEFT JOIN ff.suspension_current s
    ON (s.partition_key, s.execution_id) = (e.partition_key, e.execution_id)
   AND s.closed_at_ms IS NULL AND e.lifecycle_phase = 'suspended'
 WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
   AND (%(namespaces)s::text[] IS NULL OR r.namespace = ANY (%(namespaces)s::text[]))
"""


class ExecutionRow(msgspec.Struct, frozen=True):
    """The answer row."""

    flow_id: UUID | None
    lane_id: str
    namespace: str
    execution_kind: str
    required_capabilities: list[str]
    priority: int
    lifecycle_phase: str
    ownership_state: str
    eligibility_state: str
    blocking_reason: str
    terminal_outcome: str
    attempt_state: str
    public_state: str
    blocking_detail: str | None
    attempt_index: int
    total_attempt_count: int
    retry_count: int
    lease_reclaim_count: int
    infra_release_count: int
    replay_count: int
    lease_epoch: int
    lease_id: UUID | None
    worker_id: str | None
    worker_instance_id: str | None
    lease_expires_at_ms: int | None
    created_at_ms: int
    started_at_ms: int | None
    terminal_at_ms: int | None
    delay_until_ms: int | None
    deadline_at_ms: int | None
    last_mutation_at_ms: int
    progress_pct: int | None
    progress_message: str | None
    failure_reason: str | None
    failure_category: str | None
    cancellation_reason: str | None
    cancelled_by: str | None
    tags: str
    idempotency_key: str | None
    creator_identity: str | None
    payload_encoding: str | None
    payload: bytes | None
    result: bytes | None
    result_encoding: str | None
    failure_detail: str | None
    suspension_id: UUID | None
    suspended_at_ms: int
    timeout_at_ms: int | None
    timeout_behavior: str
    reason_code: str
    awaits_signals: list[str]


async def read_execution(
    conn: Connection,
    execution_id: ExecutionId,
    *,
    with_body: bool = False,
    namespaces: Sequence[str] | None = None,
) -> ExecutionRow | None:
    """The row; None if the execution does not exist, or is in none of the namespaces.

    Payload, result and failure detail are read on request only: they may be large.
    """
    return await fetch_maybe(
        conn,
        READ_EXECUTION,
        ExecutionRow,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        with_body=with_body,
        namespaces=namespaces,
    )
