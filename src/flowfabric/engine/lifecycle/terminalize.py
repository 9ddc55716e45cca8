"""any non-terminal → terminal: named executions end, whatever their state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.sql.end import RUNG, TERMINALIZE
from flowfabric.engine.lifecycle.sql.fence import STANDING
from flowfabric.ids import ExecutionId, clean_text
from flowfabric.states import TerminalOutcome

TERMINALIZE_NAMED: Final[LiteralString] = (
    """
-- lifecycle.terminalize
WITH named AS (       -- who is to end
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), seen AS (          -- the rows as they stand, locked in one order
    SELECT"""
    + STANDING
    + """
      FROM ff.exec_core e JOIN named USING (partition_key, execution_id)
     ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e
), ending AS (
    SELECT seen.*, %(outcome)s::text AS outcome, %(failure_reason)s::text AS failure_reason,
           %(failure_category)s::text AS failure_category, NULL::text AS failure_detail,
           NULL::bytea AS result, %(cancellation_reason)s::text AS cancellation_reason,
           %(cancelled_by)s::text AS cancelled_by, true AS rotates,
           CASE WHEN %(outcome)s = 'expired' THEN 'expired' ELSE 'revoked' END AS lease_event,
           CASE WHEN %(outcome)s = 'cancelled' THEN 'cancelled' END AS lease_reason
      FROM seen WHERE lifecycle_phase <> 'terminal'
), """
    + TERMINALIZE
    + """, forgotten AS (     -- whoever was promised what has ended
    DELETE FROM ff.claim_grant g USING ended
     WHERE (g.partition_key, g.execution_id) = (ended.partition_key, ended.execution_id)
)
SELECT ended.partition_key, ended.execution_id FROM ended WHERE """
    + RUNG
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
) -> set[ExecutionId]:
    """End every one that has not ended, whoever holds it; those that this call ended.

    A lease that was held is void at once: its epoch is passed; so are grants. The others stay as
    they are.
    """
    cancelled = outcome is TerminalOutcome.CANCELLED
    why = None if reason is None else clean_text(reason)
    rows = await fetch_all(
        conn,
        TERMINALIZE_NAMED,
        _Ended,
        partition_key=[execution.partition_key for execution in executions],
        execution_id=[execution.uuid for execution in executions],
        outcome=outcome.value,
        failure_reason=None if cancelled else why,
        failure_category=None if cancelled else category,
        cancellation_reason=why if cancelled else None,
        cancelled_by=by if cancelled else None,
    )
    return {ExecutionId(row.partition_key, row.execution_id) for row in rows}
