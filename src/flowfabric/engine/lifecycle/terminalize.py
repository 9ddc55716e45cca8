"""any non-terminal → terminal: named executions end, whatever their state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.signal_holders import signal_holders
from flowfabric.engine.lifecycle.sql.close import CLOSED_BESIDE
from flowfabric.engine.lifecycle.sql.end import end
from flowfabric.engine.lifecycle.sql.fence import LOCKED_BY_ID
from flowfabric.engine.lifecycle.sql.queue import dequeued
from flowfabric.ids import ExecutionId, clean_text, id_columns
from flowfabric.states import LeaseEventReason, TerminalOutcome

TERMINALIZE: Final[LiteralString] = (
    """
-- lifecycle.terminalize
"""
    + LOCKED_BY_ID
    + end(
        "seen",
        where="lifecycle_phase <> 'terminal'",
        outcome="%(outcome)s::text",
        result="%(result)s::bytea",
        result_encoding="%(result_encoding)s::text",
        failure_reason="%(failure_reason)s::text",
        failure_category="%(failure_category)s::text",
        cancellation_reason="%(cancellation_reason)s::text",
        cancelled_by="%(cancelled_by)s::text",
        lease_event="CASE WHEN %(outcome)s = 'expired' THEN 'expired' ELSE 'revoked' END",
        lease_reason="%(lease_reason)s::text",
    )
    + dequeued("ended", where="leaving.was_eligible")
    + CLOSED_BESIDE
    + """
SELECT partition_key, execution_id, worker_instance_id AS holder FROM ended
"""
)


class _Ended(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    holder: str | None


async def terminalize(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    outcome: TerminalOutcome,
    reason: str | None = None,
    category: str | None = None,
    cancellation_reason: str | None = None,
    by: str | None = None,
    result: bytes | None = None,
    result_encoding: str | None = None,
    lease_reason: LeaseEventReason | None = None,
    close_reason: str | None = None,
) -> set[ExecutionId]:
    """End every execution that has not ended, also one that is leased; those that this call ended.

    The caller has locked them by `lock_executions`. Their leases and grants are void at once. The
    `reason` is that of a failure, or of a cancellation if the outcome is one; `cancellation_reason`
    is stored beside it, whatever the outcome.
    Executions that had ended stay as they are. A `result` is kept with the attempt that runs. A
    suspension and waitpoints are closed, with `close_reason` or the outcome as their reason.
    """
    cancelled = outcome is TerminalOutcome.CANCELLED
    if cancelled and lease_reason is None:
        lease_reason = LeaseEventReason.CANCELLED
    why = None if reason is None else clean_text(reason)
    rows = await fetch_all(
        conn,
        TERMINALIZE,
        _Ended,
        outcome=outcome.value,
        result=result,
        result_encoding=None if result_encoding is None else clean_text(result_encoding),
        lease_reason=None if lease_reason is None else lease_reason.value,
        failure_reason=None if cancelled else why,
        failure_category=None if cancelled else category,
        cancellation_reason=cancellation_reason or (why if cancelled else None),
        cancelled_by=by if cancelled else None,
        close_reason=close_reason or outcome.value,
        **id_columns(executions),
    )
    signal_holders(row.holder for row in rows)
    return {ExecutionId(row.partition_key, row.execution_id) for row in rows}
