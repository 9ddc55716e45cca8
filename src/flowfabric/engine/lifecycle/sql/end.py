"""any non-terminal → terminal: the one way an execution ends.

`END` is the part that every ending statement shares. It takes a CTE `ending` (the columns of
`fence.STANDING` plus what was decided) and gives `ended`: the execution is terminal, its
attempt is closed, and one completion event and, if a lease was held, one lease event are written.
"""

from __future__ import annotations

from typing import Final, LiteralString

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
