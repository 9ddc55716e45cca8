"""active → runnable: the one way a lease is given up while the execution goes on.

`RELINQUISH` is the part that every such statement shares. It takes a CTE `leaving` (the standing
columns of `fence.STANDING` plus what was decided) and gives `left_over`: the execution waits or is
claimable again, its attempt is written into the ledger, one lease event tells why.
"""

from __future__ import annotations

from typing import Final, LiteralString

RELINQUISH: Final[LiteralString] = """left_over AS (        -- back in the pool, now or later
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'runnable', last_mutation_at_ms = ff.now_ms(),
           eligibility_state = CASE WHEN e.flow_cancelled THEN 'blocked_by_operator'
                                    WHEN leaving.waiting_for = 'waiting_for_children'
                                    THEN 'blocked_by_dependencies'
                                    WHEN leaving.until_ms IS NULL THEN 'eligible_now'
                                    ELSE 'not_eligible_until_time' END,
           blocking_reason = CASE WHEN e.flow_cancelled THEN 'paused_by_flow_cancel'
                                  WHEN leaving.waiting_for = 'waiting_for_children'
                                  THEN leaving.waiting_for
                                  WHEN leaving.until_ms IS NULL THEN 'waiting_for_worker'
                                  ELSE leaving.waiting_for END,
           delay_until_ms = CASE WHEN e.flow_cancelled THEN NULL ELSE leaving.until_ms END,
           attempt_state = leaving.next_attempt_state,
           attempt_index = e.attempt_index + leaving.retries::integer,
           retry_count = e.retry_count + leaving.retries::integer,
           lease_epoch = e.lease_epoch + leaving.rotates::integer, lease_lost = leaving.loses,
           lease_expires_at_ms = NULL, worker_id = NULL, worker_instance_id = NULL,
           attempt_timeout_at_ms = NULL,
           failure_reason = coalesce(leaving.failure_reason, e.failure_reason),
           failure_category = coalesce(leaving.failure_category, e.failure_category)
      FROM leaving
     WHERE (e.partition_key, e.execution_id) = (leaving.partition_key, leaving.execution_id)
 RETURNING leaving.*
), laid_down AS (     -- the attempt, as far as it came
    INSERT INTO ff.attempt AS a (
           partition_key, execution_id, attempt_index, lease_id, lease_epoch, started_at_ms,
           ended_at_ms, attempt_type, outcome, worker_id, worker_instance_id, failure_reason,
           failure_category, failure_detail)
    SELECT partition_key, execution_id, attempt_index, lease_id, lease_epoch,
           attempt_started_at_ms, ff.now_ms(), attempt_type, attempt_outcome, worker_id,
           worker_instance_id, failure_reason, failure_category, failure_detail
      FROM left_over
        ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE
       SET lease_id = EXCLUDED.lease_id, lease_epoch = EXCLUDED.lease_epoch,
           ended_at_ms = EXCLUDED.ended_at_ms, outcome = EXCLUDED.outcome,
           worker_id = EXCLUDED.worker_id, worker_instance_id = EXCLUDED.worker_instance_id,
           failure_reason = EXCLUDED.failure_reason, failure_category = EXCLUDED.failure_category,
           failure_detail = EXCLUDED.failure_detail
), told_left AS (
    INSERT INTO ff.lease_event (
           execution_id, lease_id, route_id, lease_epoch, occurred_at_ms, attempt_index,
           partition_key, event_type, reason, worker_instance_id, tags)
    SELECT execution_id, lease_id, route_id, lease_epoch, ff.now_ms(), attempt_index,
           partition_key, lease_event, lease_reason, worker_instance_id, nullif(tags, '{}')
      FROM left_over
), called AS (        -- whoever waits for work on a lane that has some now, or follows leases
    SELECT ff.wake('lane:' || lane_id)
      FROM (SELECT DISTINCT r.lane_id FROM left_over JOIN ff.route r USING (route_id)
             WHERE left_over.until_ms IS NULL
               AND left_over.waiting_for <> 'waiting_for_children') AS lanes
     UNION ALL
    (SELECT ff.wake('lease') FROM left_over LIMIT 1)
)"""

CALLED: Final[LiteralString] = "(SELECT count(*) FROM called) IS NOT NULL"
"""True; as a condition of the final SELECT it makes `called` happen."""
