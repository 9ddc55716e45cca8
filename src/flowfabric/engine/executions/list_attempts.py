"""The attempts of one execution, from the first to the one that runs now."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, attempt_id
from flowfabric.instants import instant
from flowfabric.states import AttemptOutcome, AttemptType

ATTEMPTS: Final[LiteralString] = """
-- executions.list_attempts
WITH core AS (        -- the execution, for the attempt that runs
    SELECT * FROM ff.execution
     WHERE (partition_key, execution_id) = (%(partition_key)s, %(execution_id)s)
)
SELECT a.attempt_index, a.attempt_type, a.outcome, a.lease_id, a.lease_epoch, a.worker_id,
       a.worker_instance_id, a.started_at_ms, a.ended_at_ms, a.failure_reason,
       a.failure_category, a.failure_detail
  FROM ff.attempt a JOIN core USING (partition_key, execution_id)
 WHERE NOT (core.lifecycle_phase = 'active' AND core.attempt_index = a.attempt_index)
 UNION ALL
SELECT attempt_index, attempt_type, NULL, lease_id, lease_epoch, worker_id, worker_instance_id,
       attempt_started_at_ms, NULL, NULL, NULL, NULL
  FROM core WHERE lifecycle_phase = 'active'
 ORDER BY attempt_index
"""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt; `outcome` and `ended_at` are None while it runs."""

    attempt_id: UUID
    attempt_index: int
    attempt_type: AttemptType
    outcome: AttemptOutcome | None
    lease_id: UUID
    lease_epoch: int
    worker_id: str
    worker_instance_id: str
    started_at: datetime
    ended_at: datetime | None
    failure_reason: str | None
    failure_category: str | None
    failure_detail: str | None


class _Row(msgspec.Struct, frozen=True):
    attempt_index: int
    attempt_type: str
    outcome: str | None
    lease_id: UUID
    lease_epoch: int
    worker_id: str
    worker_instance_id: str
    started_at_ms: int
    ended_at_ms: int | None
    failure_reason: str | None
    failure_category: str | None
    failure_detail: str | None


async def list_attempts(conn: Connection, execution_id: ExecutionId) -> list[Attempt]:
    """Every attempt in order; empty if there was none, or no such execution."""
    rows = await fetch_all(
        conn,
        ATTEMPTS,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
    )
    return [
        Attempt(
            attempt_id=attempt_id(execution_id, row.attempt_index),
            attempt_index=row.attempt_index,
            attempt_type=AttemptType(row.attempt_type),
            outcome=None if row.outcome is None else AttemptOutcome(row.outcome),
            lease_id=row.lease_id,
            lease_epoch=row.lease_epoch,
            worker_id=row.worker_id,
            worker_instance_id=row.worker_instance_id,
            started_at=instant(row.started_at_ms),
            ended_at=instant(row.ended_at_ms),
            failure_reason=row.failure_reason,
            failure_category=row.failure_category,
            failure_detail=row.failure_detail,
        )
        for row in rows
    ]
