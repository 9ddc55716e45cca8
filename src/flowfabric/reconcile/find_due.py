"""One look of a process: does it sweep for the whole fleet, and which sweeps have due rows?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.db.vacuum_queue import DEAD_ROWS, QUEUE_HAS_DEAD_ROWS
from flowfabric.engine.events.prune_actions import KEPT as ACTIONS_KEPT
from flowfabric.engine.flows.project_unsettled import EVERY_MS as PROJECTED_EVERY_MS
from flowfabric.engine.workers.prune_worker_events import KEPT as WORKER_EVENTS_KEPT
from flowfabric.engine.workers.recover_dead_workers import APART_MS
from flowfabric.policy import DEFAULT_RETENTION, milliseconds

HELD_FOR: Final = 1.6
"""Seconds until a process that does not look any more has lost its role.

A process that freezes may sweep and hold leases. A lease has to be claimable within its TTL and two
seconds, also if it is as short as a second: another process must sweep by then.
"""
OF_STANDBY: Final = ("recover_dead_workers",)
"""What the process that stands by does too: the one that sweeps may itself be the dead worker.

Two looks find a worker dead. They would begin only after the role has changed hands.
"""

# The role of a process whose session has ended is free at once: the server closes the session of a
# killed process. A session that is not known (NULL) proves nothing; then only time frees the role.
# Two processes that take the same role at the same instant may both sweep once: sweeps pass over
# the rows of one another.
# Each subquery is ordered as the index that it needs: EXISTS would drop the order, and behind a
# pooler the planner would read the table, expecting to find a row soon. CASE keeps the subqueries
# of sweeps that are not asked for from being run.
FIND_DUE: Final[LiteralString] = f"""
-- reconcile.find_due
WITH seen AS (        -- the two roles, each with its holder
    SELECT standby, s.held_until_ms, s.worker_instance_id = %(instance)s::text AS mine,
           s.held_until_ms > ff.now_ms()
           AND (s.session_pid IS NULL
                OR EXISTS (SELECT FROM pg_stat_get_activity(s.session_pid))) AS held
      FROM (VALUES (false), (true)) AS role (standby) LEFT JOIN ff.sweeper s USING (standby)
), chosen AS (        -- sweeping before standing by
    SELECT standby, held_until_ms FROM seen
     WHERE %(may_sweep)s::boolean AND (mine OR held IS NOT TRUE) ORDER BY standby LIMIT 1
), taken AS (         -- unless another process has taken the role meanwhile
    INSERT INTO ff.sweeper AS s (standby, worker_instance_id, held_until_ms, session_pid)
    SELECT standby, %(instance)s::text, ff.now_ms() + %(held_for_ms)s::bigint,
           %(session_pid)s::integer
      FROM chosen
        ON CONFLICT (standby) DO UPDATE
       SET worker_instance_id = EXCLUDED.worker_instance_id,
           held_until_ms = EXCLUDED.held_until_ms, session_pid = EXCLUDED.session_pid
     WHERE s.worker_instance_id = EXCLUDED.worker_instance_id
        OR s.held_until_ms = (SELECT held_until_ms FROM chosen)
), left_free AS (     -- a process that takes over does not stand by any more
    DELETE FROM ff.sweeper
     WHERE standby AND worker_instance_id = %(instance)s::text AND NOT (SELECT standby FROM chosen)
), due AS (           -- of the sweeps that are asked for
    SELECT name FROM unnest(%(wanted)s::text[]) AS name
     WHERE (SELECT NOT standby OR name = ANY (%(of_standby)s::text[]) FROM chosen) AND CASE name
      WHEN 'promote_due' THEN
          (SELECT true FROM ff.exec_core
            WHERE delay_until_ms <= ff.now_ms() AND eligibility_state = 'not_eligible_until_time'
            ORDER BY delay_until_ms LIMIT 1)
      WHEN 'expire_leases' THEN
          (SELECT true FROM ff.lease WHERE lease_expires_at_ms <= ff.now_ms() LIMIT 1)
      WHEN 'expire_attempts' THEN
          (SELECT true FROM ff.lease WHERE attempt_timeout_at_ms <= ff.now_ms() LIMIT 1)
      WHEN 'expire_executions' THEN
          (SELECT true FROM ff.exec_core
            WHERE open_deadline_at_ms <= ff.now_ms()
            ORDER BY open_deadline_at_ms LIMIT 1)
      WHEN 'expire_suspensions' THEN
          (SELECT true FROM ff.suspension_current WHERE timeout_at_ms <= ff.now_ms()
            ORDER BY timeout_at_ms LIMIT 1)
      WHEN 'redispatch_lost_completions' THEN  -- whether one is lost is not known by an index
          (SELECT true FROM ff.exec_core WHERE exceptional_state = 'blocked_by_dependencies'
            ORDER BY uuid_hash(execution_id) LIMIT 1)
      WHEN 'dispatch_completions' THEN
          (SELECT true FROM ff.completion_event
            WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL
            ORDER BY event_id LIMIT 1)
      WHEN 'cancel_siblings' THEN
          (SELECT true FROM ff.pending_cancel_groups ORDER BY enqueued_at_ms LIMIT 1)
      WHEN 'reconcile_siblings' THEN
          (SELECT true FROM ff.pending_cancel_groups ORDER BY enqueued_at_ms LIMIT 1)
      WHEN 'reconcile_cancels' THEN
          (SELECT true FROM ff.cancel_backlog WHERE grace_until_ms <= ff.now_ms()
            ORDER BY grace_until_ms LIMIT 1)
      WHEN 'end_parked_members' THEN
          (SELECT true FROM ff.exec_core WHERE exceptional_state = 'paused_by_flow_cancel'
            ORDER BY partition_key, flow_id LIMIT 1)
      WHEN 'fire_schedules' THEN
          (SELECT true FROM ff.schedule
            WHERE state = 'active' AND next_fire_at_ms <= ff.now_ms()
            ORDER BY next_fire_at_ms LIMIT 1)
      WHEN 'release_queued' THEN  -- whose turn it is, the sweep finds out
          (SELECT true FROM ff.schedule WHERE queued ORDER BY name LIMIT 1)
      WHEN 'unblock_due_keys' THEN
          (SELECT true FROM ((SELECT true FROM ff.quota_wakeup
                               ORDER BY partition_key, wakeup_id LIMIT 1)
                              UNION ALL
                             (SELECT true FROM ff.quota_key WHERE next_at_ms <= ff.now_ms()
                               ORDER BY next_at_ms LIMIT 1)) AS found LIMIT 1)
      WHEN 'unblock_held_keys' THEN  -- whether there is room, the sweep finds out
          (SELECT true FROM ff.exec_core
            WHERE exceptional_state = 'blocked_by_quota' AND quota_key_id IS NOT NULL
            ORDER BY quota_key_id LIMIT 1)
      WHEN 'trim_quotas' THEN
          (SELECT true FROM ff.quota_key ORDER BY partition_key, quota_key_id LIMIT 1)
      WHEN 'start_compensations' THEN
          (SELECT true FROM ff.exec_core
            WHERE compensates
              AND exceptional_state IN ('failed', 'cancelled', 'expired', 'skipped')
            ORDER BY created_at_ms LIMIT 1)
      WHEN 'project_unsettled' THEN
          (SELECT true FROM ff.flow_summary
            WHERE public_flow_state IN ('open', 'running', 'blocked')
              AND last_summary_update_at_ms <= ff.now_ms() - %(projected_every_ms)s::bigint
            ORDER BY last_summary_update_at_ms LIMIT 1)
      WHEN 'unblock_routes' THEN
          (SELECT true FROM ff.exec_core WHERE exceptional_state = 'blocked_by_route'
            ORDER BY route_id LIMIT 1)
      WHEN 'reset_budgets' THEN
          (SELECT true FROM ff.budget_policy WHERE next_reset_at_ms <= ff.now_ms()
            ORDER BY next_reset_at_ms LIMIT 1)
      WHEN 'unblock_budgets' THEN  -- whether one has room again, the sweep finds out
          (SELECT true FROM ff.exec_core WHERE exceptional_state = 'blocked_by_budget'
            ORDER BY budget_ids LIMIT 1)
      WHEN 'release_lost_races' THEN  -- whether one has ended, the sweep finds out
          (SELECT true FROM ff.budget_usage_by_exec WHERE unsettled
            ORDER BY uuid_hash(execution_id) LIMIT 1)
      WHEN 'expire_pending_waitpoints' THEN
          (SELECT true FROM ff.waitpoint_pending
            WHERE state = 'pending' AND expires_at_ms <= ff.now_ms()
            ORDER BY expires_at_ms LIMIT 1)
      WHEN 'recover_dead_workers' THEN
          (SELECT true FROM ff.worker_liveness
            WHERE CASE WHEN connected THEN lock_missed_at_ms IS NOT NULL
                       ELSE coalesce(lock_missed_at_ms, 0)
                            <= ff.now_ms() - %(apart_ms)s::bigint END LIMIT 1)
      WHEN 'expire_workers' THEN
          (SELECT true FROM ff.worker_registry
            WHERE last_heartbeat_ms + liveness_ttl_ms < ff.now_ms() LIMIT 1)
      WHEN 'expire_waiters' THEN
          (SELECT true FROM ff.waiter WHERE waiting_until_ms < ff.now_ms() - 60000 LIMIT 1)
      WHEN 'vacuum_queue' THEN
          ({QUEUE_HAS_DEAD_ROWS})
      WHEN 'expire_grants' THEN
          (SELECT true FROM ff.claim_grant WHERE expires_at_ms < ff.now_ms() - 60000
            ORDER BY expires_at_ms LIMIT 1)
      WHEN 'expire_frames' THEN
          (SELECT true FROM ff.stream_meta WHERE expires_at_ms <= ff.now_ms()
            ORDER BY expires_at_ms LIMIT 1)
      WHEN 'delete_empty_flows' THEN
          (SELECT true FROM ff.flow_core
            WHERE node_count = 0
              AND last_mutation_at_ms <= ff.now_ms() - %(default_retention_ms)s::bigint
            ORDER BY last_mutation_at_ms LIMIT 1)
      WHEN 'prune_worker_events' THEN
          (SELECT true FROM ff.worker_registry_event
            WHERE event_at_ms <= ff.now_ms() - %(worker_events_kept_ms)s::bigint
            ORDER BY event_at_ms LIMIT 1)
      WHEN 'prune_actions' THEN
          (SELECT true FROM ff.operator_event
            WHERE execution_id IS NULL
              AND occurred_at_ms <= ff.now_ms() - %(actions_kept_ms)s::bigint
            ORDER BY occurred_at_ms LIMIT 1)
      WHEN 'prune_schedule_fires' THEN  -- which schedules have too many, the sweep finds out
          (SELECT true FROM ff.schedule_fire ORDER BY recorded_at_ms LIMIT 1)
      WHEN 'prune_usage_keys' THEN
          (SELECT true FROM ff.budget_usage_dedup WHERE expires_at_ms < ff.now_ms()
            ORDER BY expires_at_ms LIMIT 1)
      WHEN 'run_bulk_actions' THEN
          (SELECT true FROM ff.bulk_action WHERE state = 'running' ORDER BY bulk_id LIMIT 1)
      WHEN 'roll_up_activity' THEN  -- whether it is settled, the sweep finds out
          (SELECT event_id > coalesce((SELECT p.event_id FROM ff.activity_place p), 0)
             FROM ff.completion_event ORDER BY event_id DESC LIMIT 1)
      WHEN 'compact_activity' THEN  -- whether it is old enough, the sweep finds out
          (SELECT true FROM ff.activity ORDER BY begins_at_ms LIMIT 1)
      WHEN 'sample_budget_usage' THEN  -- which have changed, the sweep finds out
          (SELECT true FROM ff.budget_policy LIMIT 1)
      WHEN 'compact_budget_usage' THEN  -- whether it is old enough, the sweep finds out
          (SELECT true FROM ff.budget_usage_history LIMIT 1)
      WHEN 'forget_sessions' THEN
          (SELECT true FROM ff.web_session WHERE expires_at_ms <= ff.now_ms()
            ORDER BY expires_at_ms LIMIT 1)
      ELSE true END   -- a sweep that only its own statement can answer for
)
SELECT (SELECT standby FROM chosen) AS standby, ARRAY(SELECT name FROM due) AS due,
       least(
           (SELECT delay_until_ms - ff.now_ms() FROM ff.exec_core
             WHERE delay_until_ms > ff.now_ms() AND NOT (SELECT standby FROM chosen)
             ORDER BY delay_until_ms LIMIT 1),
           (SELECT timeout_at_ms - ff.now_ms() FROM ff.suspension_current
             WHERE timeout_at_ms > ff.now_ms() AND NOT (SELECT standby FROM chosen)
             ORDER BY timeout_at_ms LIMIT 1),
           (SELECT next_at_ms - ff.now_ms() FROM ff.quota_key
             WHERE next_at_ms > ff.now_ms() AND NOT (SELECT standby FROM chosen)
             ORDER BY next_at_ms LIMIT 1),
           (SELECT next_fire_at_ms - ff.now_ms() FROM ff.schedule
             WHERE state = 'active' AND next_fire_at_ms > ff.now_ms()
               AND NOT (SELECT standby FROM chosen)
             ORDER BY next_fire_at_ms LIMIT 1),
           (SELECT min(lock_missed_at_ms) + %(apart_ms)s::bigint - ff.now_ms()
              FROM ff.worker_registry WHERE EXISTS (SELECT FROM chosen))) AS next_due_ms
"""


class Look(msgspec.Struct, frozen=True):
    """The role of the process and, if it sweeps, what there is to do."""

    standby: bool | None
    """False: it sweeps. True: it takes over from the process that sweeps. None: neither."""
    due: list[str]
    """The names of the sweeps that have due rows."""
    next_due_ms: int | None
    """In how many milliseconds a delay or suspension ends, a schedule fires, a worker is sought."""


async def find_due(
    conn: Connection,
    instance: str,
    wanted: Sequence[str],
    *,
    session_pid: int | None = None,
    may_sweep: bool = True,
) -> Look:
    """Take or keep a role for `HELD_FOR` seconds; which of `wanted` are due and its to run.

    `session_pid` is the server process of a session that ends with this process. A process that
    may not sweep takes no role; the one that it has runs out.
    """
    return await fetch_one(
        conn,
        FIND_DUE,
        Look,
        instance=instance,
        wanted=wanted,
        session_pid=session_pid,
        may_sweep=may_sweep,
        held_for_ms=milliseconds(HELD_FOR),
        of_standby=OF_STANDBY,
        dead_rows=DEAD_ROWS,
        projected_every_ms=PROJECTED_EVERY_MS,
        default_retention_ms=milliseconds(DEFAULT_RETENTION),
        worker_events_kept_ms=milliseconds(WORKER_EVENTS_KEPT),
        actions_kept_ms=milliseconds(ACTIONS_KEPT),
        apart_ms=APART_MS,
    )
