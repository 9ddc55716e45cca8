"""any non-terminal → terminal: named executions end, whatever their state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.sql.end import end
from flowfabric.engine.lifecycle.sql.fence import LOCKED_COLUMNS
from flowfabric.ids import ExecutionId, clean_text, id_columns
from flowfabric.states import LeaseEventReason, TerminalOutcome

TERMINALIZE: Final[LiteralString] = (
    f"""
-- lifecycle.terminalize
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), seen AS (          -- locked in one order
    SELECT{LOCKED_COLUMNS}
      FROM ff.exec_core e JOIN named USING (partition_key, execution_id)
     ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e
)"""
    + end(
        "seen",
        where="lifecycle_phase <> 'terminal'",
        outcome="%(outcome)s::text",
        result="%(result)s::bytea",
        failure_reason="%(failure_reason)s::text",
        failure_category="%(failure_category)s::text",
        cancellation_reason="%(cancellation_reason)s::text",
        cancelled_by="%(cancelled_by)s::text",
        lease_event="CASE WHEN %(outcome)s = 'expired' THEN 'expired' ELSE 'revoked' END",
        lease_reason="%(lease_reason)s::text",
    )
    + """, grants_deleted AS ( -- a grant of an execution that has ended is worth nothing
    DELETE FROM ff.claim_grant g USING ended
     WHERE (g.partition_key, g.execution_id) = (ended.partition_key, ended.execution_id)
)
SELECT partition_key, execution_id FROM ended
"""
)


class _Ended(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def terminalize(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    outcome: TerminalOutcome,
    reason: str | None = None,
    category: str | None = None,
    by: str | None = None,
    result: bytes | None = None,
    lease_reason: LeaseEventReason | None = None,
) -> set[ExecutionId]:
    """End every execution that has not ended, also one that is leased; those that this call ended.

    Leases and grants of them are void at once. Executions that had ended stay as they are. A
    `result` is kept with the attempt that runs.
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
        lease_reason=None if lease_reason is None else lease_reason.value,
        failure_reason=None if cancelled else why,
        failure_category=None if cancelled else category,
        cancellation_reason=why if cancelled else None,
        cancelled_by=by if cancelled else None,
        **id_columns(executions),
    )
    return {ExecutionId(row.partition_key, row.execution_id) for row in rows}
