"""any non-terminal → terminal: the one way an execution ends.

`TERMINALIZE` is the part that every ending statement shares. It takes a CTE `ending` (the standing
columns of `fence.STANDING` plus what was decided) and gives `ended`: the execution is terminal, its
attempt is closed, and one completion event and, if a lease was held, one lease event are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.fence import STANDING
from flowfabric.ids import ExecutionId, clean_text
from flowfabric.states import TerminalOutcome

TERMINALIZE: Final[LiteralString] = """ended AS (            -- whatever has not ended yet
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'terminal', eligibility_state = 'not_applicable',
           blocking_reason = 'none', blocking_detail = NULL, resume_pending = false,
           lease_lost = false, terminal_outcome = ending.outcome, terminal_at_ms = ff.now_ms(),
           last_mutation_at_ms = ff.now_ms(), delay_until_ms = NULL, not_before_ms = NULL,
           attempt_state = CASE WHEN e.total_attempt_count > 0
                                THEN 'attempt_terminal' ELSE e.attempt_state END,
           lease_epoch = e.lease_epoch + (ending.leased AND ending.rotates)::integer,
           lease_expires_at_ms = NULL, worker_id = NULL, worker_instance_id = NULL,
           attempt_timeout_at_ms = NULL,
           failure_reason = ending.failure_reason, failure_category = ending.failure_category,
           cancellation_reason = ending.cancellation_reason, cancelled_by = ending.cancelled_by
      FROM ending
     WHERE (e.partition_key, e.execution_id) = (ending.partition_key, ending.execution_id)
       AND e.lifecycle_phase <> 'terminal'
 RETURNING ending.*
), closed AS (        -- the attempt that ran until now
    INSERT INTO ff.attempt AS a (
           partition_key, execution_id, attempt_index, lease_id, lease_epoch, started_at_ms,
           ended_at_ms, attempt_type, outcome, worker_id, worker_instance_id, failure_reason,
           failure_category, failure_detail, result)
    SELECT partition_key, execution_id, attempt_index, lease_id, lease_epoch,
           attempt_started_at_ms, ff.now_ms(), attempt_type,
           CASE outcome WHEN 'skipped' THEN 'cancelled' ELSE outcome END, worker_id,
           worker_instance_id, failure_reason, failure_category, failure_detail, result
      FROM ended WHERE leased
        ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE
       SET lease_id = EXCLUDED.lease_id, lease_epoch = EXCLUDED.lease_epoch,
           ended_at_ms = EXCLUDED.ended_at_ms, outcome = EXCLUDED.outcome,
           worker_id = EXCLUDED.worker_id, worker_instance_id = EXCLUDED.worker_instance_id,
           failure_reason = EXCLUDED.failure_reason, failure_category = EXCLUDED.failure_category,
           failure_detail = EXCLUDED.failure_detail, result = EXCLUDED.result
), amended AS (       -- the attempt that was interrupted before, maybe while this waited
    INSERT INTO ff.attempt AS a (
           partition_key, execution_id, attempt_index, lease_id, lease_epoch, started_at_ms,
           ended_at_ms, attempt_type, outcome, worker_id, worker_instance_id)
    SELECT partition_key, execution_id, attempt_index, lease_id, lease_epoch,
           attempt_started_at_ms, ff.now_ms(), attempt_type,
           CASE outcome WHEN 'skipped' THEN 'cancelled' ELSE outcome END, '', ''
      FROM ended WHERE NOT leased AND attempt_state = 'attempt_interrupted'
        ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE
       SET outcome = EXCLUDED.outcome, ended_at_ms = EXCLUDED.ended_at_ms
), told_lease AS (
    INSERT INTO ff.lease_event (
           execution_id, lease_id, route_id, lease_epoch, occurred_at_ms, attempt_index,
           partition_key, event_type, reason, worker_instance_id, tags)
    SELECT execution_id, lease_id, route_id, lease_epoch, ff.now_ms(), attempt_index,
           partition_key, lease_event, lease_reason, worker_instance_id, nullif(tags, '{}')
      FROM ended WHERE leased
), told AS (
    INSERT INTO ff.completion_event (
           execution_id, route_id, occurred_at_ms, partition_key, outcome, flow_id, tags)
    SELECT execution_id, route_id, ff.now_ms(), partition_key, outcome, flow_id, nullif(tags, '{}')
      FROM ended
), rung AS (          -- whoever waits for an end
    SELECT ff.wake('completion') FROM ended LIMIT 1
)"""

RUNG: Final[LiteralString] = "(SELECT count(*) FROM rung) IS NOT NULL"
"""True; as a condition of the final SELECT it makes `rung` happen."""

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
