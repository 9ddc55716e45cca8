"""Why an execution is not running, or how it ended, and what would change that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.executions.budget_reason import budget_reason
from flowfabric.engine.executions.explanation import Explanation, Facts
from flowfabric.engine.executions.read_limit import read_limit
from flowfabric.engine.executions.read_waits import read_compensating, read_suspension
from flowfabric.engine.executions.reasons import explained
from flowfabric.errors import NotFound
from flowfabric.ids import ExecutionId
from flowfabric.states import EligibilityState, LifecyclePhase, PublicState

AHEAD_AT_MOST: Final = 1000
"""The place in the queue is counted up to this number."""

EXPLAIN_EXECUTION: Final[LiteralString] = """
-- executions.explain_execution
WITH core AS (
    SELECT e.*, r.namespace, r.lane_id, r.execution_kind, r.required_capabilities,
           ff.now_ms() AS seen_at_ms
      FROM ff.execution e JOIN ff.route r USING (route_id)
     WHERE (e.partition_key, e.execution_id) = (%(partition_key)s, %(execution_id)s)
       AND (%(namespaces)s::text[] IS NULL OR r.namespace = ANY (%(namespaces)s::text[]))
), alive AS (         -- the live workers of its namespace, and what each can run
    SELECT w.worker_instance_id, w.capabilities, w.concurrency,
           core.lane_id = ANY (w.lanes) AS on_lane,
           w.kinds = '{}' OR core.execution_kind = ANY (w.kinds) AS of_kind,
           core.required_capabilities <@ w.capabilities AS capable,
           core.execution_kind = ANY (w.unclaimed_kinds) AS stuck
      FROM core JOIN ff.worker_registry w ON w.namespace = core.namespace
     WHERE w.last_heartbeat_ms + w.liveness_ttl_ms > core.seen_at_ms
), able AS (
    SELECT * FROM alive WHERE on_lane AND of_kind AND capable AND NOT stuck
), ahead AS (         -- executions of its route that are claimed before it, up to a limit
    SELECT count(*) AS n
      FROM core CROSS JOIN LATERAL (
           SELECT e.priority, e.created_at_ms, e.execution_id FROM ff.ready e
            WHERE e.route_id = core.route_id
            ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
            LIMIT %(ahead_at_most)s) AS best
     WHERE core.eligibility_state = 'eligible_now'
       AND (-best.priority, best.created_at_ms, best.execution_id)
         < (-core.priority, core.created_at_ms, core.execution_id)
), busy AS (          -- the slots in use of the workers that can run it
    SELECT count(*) AS n
      FROM ff.lease l JOIN ff.exec_core e USING (partition_key, execution_id)
      JOIN ff.route r USING (route_id) JOIN core ON core.namespace = r.namespace
     WHERE l.worker_instance_id IN (SELECT worker_instance_id FROM able)
)
SELECT core.seen_at_ms, core.public_state, core.lifecycle_phase, core.eligibility_state,
       core.blocking_reason, core.blocking_detail, core.attempt_state, core.attempt_index,
       core.total_attempt_count, core.retry_count, core.infra_release_count,
       core.replay_count, core.priority,
       core.created_at_ms, core.last_mutation_at_ms, core.delay_until_ms, core.deadline_at_ms,
       core.terminal_at_ms, core.attempt_started_at_ms, core.attempt_timeout_at_ms,
       core.lease_expires_at_ms, core.worker_instance_id, core.failure_reason,
       core.failure_category, core.cancellation_reason, core.cancelled_by, core.progress_pct,
       core.progress_message, core.namespace, core.lane_id, core.execution_kind,
       core.required_capabilities, lane.lane_state, lane.state_changed_by,
       lane.state_changed_at_ms, lane.state_reason,
       (SELECT count(*) FROM alive) AS workers,
       (SELECT count(*) FROM alive WHERE on_lane) AS lane_workers,
       (SELECT count(*) FROM alive WHERE on_lane AND of_kind) AS kind_workers,
       (SELECT count(*) FROM able) AS able_workers,
       (SELECT count(*) FROM alive WHERE on_lane AND of_kind AND capable AND stuck)
           AS stuck_workers,
       (SELECT coalesce(sum(concurrency), 0) FROM able)::bigint AS slots,
       (SELECT n FROM busy) AS busy_slots, (SELECT n FROM ahead) AS ahead,
       ARRAY(SELECT c FROM unnest(core.required_capabilities) AS c
              WHERE NOT EXISTS (SELECT FROM alive
                                 WHERE on_lane AND of_kind AND c = ANY (alive.capabilities))
              ORDER BY c) AS missing_capabilities,
       (SELECT coalesce(jsonb_agg(jsonb_build_array(w.worker_instance_id, w.namespace, w.lanes)),
                        '[]')::text
          FROM (SELECT w.* FROM ff.worker_registry w
                 WHERE core.execution_kind = ANY (w.kinds)
                   AND (w.namespace <> core.namespace OR core.lane_id <> ALL (w.lanes))
                   AND (%(namespaces)s::text[] IS NULL
                        OR w.namespace = ANY (%(namespaces)s::text[]))
                   AND w.last_heartbeat_ms + w.liveness_ttl_ms > core.seen_at_ms
                 ORDER BY w.namespace <> core.namespace, core.lane_id <> ALL (w.lanes),
                          w.worker_instance_id
                 LIMIT 3) AS w) AS elsewhere,
       EXISTS (SELECT FROM ff.worker_registry w
                WHERE w.namespace = core.namespace
                  AND w.worker_instance_id = core.worker_instance_id
                  AND w.last_heartbeat_ms + w.liveness_ttl_ms > core.seen_at_ms) AS holder_alive,
       claim_grant.worker_id AS reserved_for, claim_grant.expires_at_ms AS reserved_until_ms,
       (SELECT o.actor FROM ff.operator_event o
         WHERE o.execution_id = core.execution_id AND o.partition_key = core.partition_key
           AND o.event_type = CASE WHEN core.cancelled_by = 'operator_override' THEN 'cancelled'
                                   WHEN core.lifecycle_phase = 'runnable' THEN 'blocked' END
         ORDER BY o.event_id DESC LIMIT 1) AS actor,
       CASE WHEN core.cancelled_by = 'engine' THEN (  -- the nearest join that was decided so
           WITH RECURSIVE below AS (
               SELECT core.partition_key, core.execution_id, NULL::text AS reason, 0 AS depth
                UNION
               SELECT g.partition_key, g.waiter_eid, g.cancel_siblings_reason, below.depth + 1
                 FROM below
                CROSS JOIN LATERAL (
                      SELECT group_id FROM ff.edge
                       WHERE (partition_key, upstream_eid)
                           = (below.partition_key, below.execution_id) OFFSET 0) AS e
                CROSS JOIN LATERAL (
                      SELECT * FROM ff.edge_group
                       WHERE (partition_key, group_id) = (below.partition_key, e.group_id)
                      OFFSET 0) AS g
                WHERE below.reason IS DISTINCT FROM core.cancellation_reason
           )
           SELECT coalesce(b.member_name, r.execution_kind)
             FROM (SELECT * FROM below WHERE reason = core.cancellation_reason LIMIT 1) AS found
             JOIN ff.execution w USING (partition_key, execution_id)
             JOIN ff.exec_body b USING (partition_key, execution_id)
             JOIN ff.route r ON r.route_id = w.route_id) END AS unneeded_by,
       (SELECT ff.replay_cap(b.policy) FROM ff.exec_body b
         WHERE (b.partition_key, b.execution_id) = (core.partition_key, core.execution_id)
       ) AS max_replay_count,
       (SELECT ff.policy_number(b.policy #> '{timeout_policy,attempt_timeout_ms}', 3153600000000)
          FROM ff.exec_body b
         WHERE (b.partition_key, b.execution_id) = (core.partition_key, core.execution_id)
       ) AS timeout_ms,
       coalesce(deps.done, 0) AS deps_done, coalesce(deps.required, 0) AS deps_required,
       coalesce(deps.total, 0) AS deps_total, coalesce(deps.lost, 0) AS deps_lost,
       ARRAY(SELECT coalesce(b.member_name, r.execution_kind) || ' (' || u.public_state || ')'
               FROM ff.edge e
               JOIN ff.execution u
                 ON (u.partition_key, u.execution_id) = (e.partition_key, e.upstream_eid)
               JOIN ff.exec_body b
                 ON (b.partition_key, b.execution_id) = (u.partition_key, u.execution_id)
               JOIN ff.route r ON r.route_id = u.route_id
              WHERE (e.partition_key, e.group_id) = (core.partition_key, deps.group_id)
                AND e.edge_state = 'applied' AND e.resolution = 'unresolved'
              LIMIT 5) AS deps_open,
       core.quota_key_id IS NOT NULL AS is_limited
  FROM core
  LEFT JOIN ff.lane_registry lane USING (lane_id)
  LEFT JOIN LATERAL (
       SELECT g.worker_id, g.expires_at_ms FROM ff.unused_grant g
        WHERE (g.partition_key, g.execution_id) = (core.partition_key, core.execution_id)
          AND g.kind = 'claim' AND g.expires_at_ms > core.seen_at_ms
        ORDER BY g.expires_at_ms DESC LIMIT 1) AS claim_grant ON true
  LEFT JOIN LATERAL (   -- a pending join of the execution
       SELECT g.group_id, g.success_count AS done, g.fail_count + g.skip_count AS lost,
              g.success_count + g.fail_count + g.skip_count + g.running_count AS total,
              CASE g.policy_kind WHEN 'any_of' THEN 1 WHEN 'quorum' THEN g.k
                   ELSE g.success_count + g.fail_count + g.skip_count + g.running_count END
                  AS required
         FROM ff.edge_group g
        WHERE (g.partition_key, g.waiter_eid) = (core.partition_key, core.execution_id)
          AND g.group_state = 'pending'
          AND g.success_count + g.fail_count + g.skip_count + g.running_count > 0
        LIMIT 1) AS deps ON core.eligibility_state = 'blocked_by_dependencies'
"""


async def explain_execution(
    conn: Connection, execution_id: ExecutionId, *, namespaces: Sequence[str] | None = None
) -> Explanation:
    """The state of the execution, its reasons, and what would change it; raises `NotFound`.

    With `namespaces` an execution in none of them is not found, and workers of others not named.

    Of a suspended execution a second statement reads what it waits for, of one that has a limit or
    is out of budget what uses it up, and of one that ended without success which execution
    compensates for it.
    """
    facts = await fetch_maybe(
        conn,
        EXPLAIN_EXECUTION,
        Facts,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        ahead_at_most=AHEAD_AT_MOST,
        namespaces=namespaces,
    )
    if facts is None:
        raise NotFound("execution", execution_id)
    suspension = compensating = limit = None
    if facts.lifecycle_phase == LifecyclePhase.SUSPENDED:
        suspension = await read_suspension(conn, execution_id)
    elif facts.terminal_at_ms is not None and facts.public_state != PublicState.COMPLETED:
        compensating = await read_compensating(conn, execution_id, facts.replay_count)
    elif facts.eligibility_state == EligibilityState.BLOCKED_BY_QUOTA:
        limit = await read_limit(conn, execution_id)
    elif facts.eligibility_state == EligibilityState.ELIGIBLE_NOW and facts.is_limited:
        limit = await read_limit(conn, execution_id)
        limit = limit if limit is not None and limit.is_used_up else None
    found = explained(
        execution_id, facts, suspension=suspension, compensating=compensating, limit=limit
    )
    if facts.eligibility_state == EligibilityState.BLOCKED_BY_BUDGET:
        return await budget_reason(conn, execution_id, found)
    return found
