"""The outcomes of executions that have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.expired_text import EXPIRED_REMEDY, expired_text
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.states import PublicState

READ_OUTCOMES: Final[LiteralString] = """
-- executions.read_outcomes
WITH asked AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS asked (partition_key, execution_id)
)
SELECT e.partition_key, e.execution_id, e.public_state, e.failure_reason, e.failure_category,
       e.cancellation_reason, e.cancelled_by, a.result, e.deadline_at_ms,
       CASE WHEN e.failure_reason = 'attempt_timeout' THEN ff.policy_number(
            e.policy #> '{timeout_policy,attempt_timeout_ms}', 3153600000000) END AS timeout_ms,
       coalesce(a.result_encoding, e.payload_encoding) AS result_encoding
  FROM asked
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT x.*, b.policy, b.payload_encoding
         FROM ff.execution x JOIN ff.exec_body b USING (partition_key, execution_id)
        WHERE (x.partition_key, x.execution_id) = (asked.partition_key, asked.execution_id)
       OFFSET 0) AS e
  LEFT JOIN LATERAL (
       SELECT result, result_encoding FROM ff.attempt
        WHERE (partition_key, execution_id, attempt_index)
            = (e.partition_key, e.execution_id, e.attempt_index) AND outcome = 'success'
       OFFSET 0) AS a ON true
 WHERE e.lifecycle_phase = 'terminal'
"""


class ExecutionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one execution ended, and its result if it succeeded."""

    execution_id: ExecutionId
    public_state: PublicState
    failure_reason: str | None
    failure_category: str | None
    cancellation_reason: str | None
    cancelled_by: str | None
    result: bytes | None
    result_encoding: str | None
    """How the result is encoded; None if neither it nor the payload has an encoding."""
    expired_because: str | None = None
    """Of one that expired: the reason in words, with the limit that was exceeded and the remedy."""


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    public_state: str
    failure_reason: str | None
    failure_category: str | None
    cancellation_reason: str | None
    cancelled_by: str | None
    result: bytes | None
    deadline_at_ms: int | None
    timeout_ms: int | None
    result_encoding: str | None


def _expired(row: _Row) -> str | None:
    if row.public_state != PublicState.EXPIRED:
        return None
    words = expired_text(
        row.failure_reason, timeout_ms=row.timeout_ms, deadline_at_ms=row.deadline_at_ms
    )
    remedy = EXPIRED_REMEDY.get(row.failure_reason or "")
    return f"{words}; {remedy}" if remedy else words


async def read_outcomes(
    conn: Connection, executions: Sequence[ExecutionId]
) -> dict[ExecutionId, ExecutionOutcome]:
    """The outcomes of those of the executions that have ended."""
    rows = await fetch_all(
        conn,
        READ_OUTCOMES,
        _Row,
        **id_columns(executions),
    )
    outcomes = [
        ExecutionOutcome(
            execution_id=ExecutionId(row.partition_key, row.execution_id),
            public_state=PublicState(row.public_state),
            failure_reason=row.failure_reason,
            failure_category=row.failure_category,
            cancellation_reason=row.cancellation_reason,
            cancelled_by=row.cancelled_by,
            result=row.result,
            result_encoding=row.result_encoding,
            expired_because=_expired(row),
        )
        for row in rows
    ]
    return {outcome.execution_id: outcome for outcome in outcomes}
