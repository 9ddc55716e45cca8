"""A database that has been in use for long: many executions that ended, some that live, none due.

Written in bulk, the rows look as the operations leave them: a third of what ended belonged to flows
of ten in a chain, and what lives waits, is delayed, runs or waits for others.
"""

from __future__ import annotations

from typing import Final

from flowfabric.db.rows import Connection
from tests.worker.facts import eventually

FLOW: Final = 10
"""Members of a flow."""

_UUID: Final = "('00000000-0000-7000-%s-' || lpad(to_hex(%s), 12, '0'))::uuid"


def _execution(n: str) -> str:
    return _UUID % ("8000", n)


def _flow(n: str) -> str:
    return _UUID % ("9000", f"({n}) / {FLOW}")


def _home(n: str) -> str:
    """The partition of an execution: that of its flow, so that ten in a row share it."""
    return f"(({n}) / {FLOW} * 7919 % 256)::smallint"


def _in_flow(n: str) -> str:
    return f"({n}) / {FLOW} % 3 = 0"


_BEFORE: Final = """
INSERT INTO ff.lane_registry (lane_id, registered_at_ms, registered_by)
VALUES ('default', ff.now_ms(), 'crowd') ON CONFLICT DO NOTHING;
INSERT INTO ff.route (route_id, namespace, lane_id, execution_kind, required_capabilities)
SELECT ff.route_id('default', 'default', kind, '{}'), 'default', 'default', kind, '{}'
  FROM unnest(ARRAY['job', 'other']) AS kind;
"""

# $1: the first number, $2: the last. What they are: `ended`, `waiting`, `delayed`, `running`,
# `held` (waits for the one before it in its flow), `parked` (its flow is being cancelled).
_BODIES: Final = f"""
INSERT INTO ff.exec_body (partition_key, execution_id, created_at_ms, payload)
SELECT {_home("n")}, {_execution("n")}, ff.now_ms() - 1000000 + n, '\\x7b7d'
  FROM generate_series($1::bigint, $2::bigint) AS n
"""
_CORES: Final = f"""
INSERT INTO ff.exec_core (
       partition_key, execution_id, route_id, created_at_ms, last_mutation_at_ms, flow_id,
       lifecycle_phase, eligibility_state, blocking_reason, terminal_outcome, attempt_state,
       delay_until_ms, terminal_at_ms, deadline_at_ms, total_attempt_count, lease_epoch, lease_id,
       attempt_type, attempt_started_at_ms, flow_cancelled)
SELECT {_home("n")}, {_execution("n")}, ff.route_id('default', 'default', 'job', '{{}}'),
       ff.now_ms() - 1000000 + n, ff.now_ms(),
       CASE WHEN {_in_flow("n")} OR $3 IN ('held', 'parked') THEN {_flow("n")} END,
       CASE $3 WHEN 'ended' THEN 'terminal' ELSE 'runnable' END,
       CASE $3 WHEN 'ended' THEN 'not_applicable'
               WHEN 'delayed' THEN 'not_eligible_until_time' WHEN 'held' THEN
               'blocked_by_dependencies' WHEN 'parked' THEN 'blocked_by_operator'
               ELSE 'eligible_now' END,
       CASE $3 WHEN 'ended' THEN 'none'
               WHEN 'delayed' THEN 'waiting_for_delay' WHEN 'held' THEN 'waiting_for_children'
               WHEN 'parked' THEN 'paused_by_flow_cancel' ELSE 'waiting_for_worker' END,
       CASE $3 WHEN 'ended' THEN 'success' ELSE 'none' END,
       CASE $3 WHEN 'ended' THEN 'attempt_terminal' ELSE 'pending_first_attempt' END,
       CASE $3 WHEN 'delayed' THEN ff.now_ms() + 86400000 + n END,
       CASE $3 WHEN 'ended' THEN ff.now_ms() - 1000000 + n END,
       CASE WHEN $3 <> 'ended' THEN ff.now_ms() + 86400000 + n END,
       ($3 = 'ended')::integer, ($3 = 'ended')::integer,
       CASE $3 WHEN 'ended' THEN {_UUID % ("a000", "n")} END,
       CASE $3 WHEN 'ended' THEN 'initial' END,
       CASE $3 WHEN 'ended' THEN ff.now_ms() - 1000 END, $3 = 'parked'
  FROM generate_series($1::bigint, $2::bigint) AS n
"""
_QUEUED: Final = f"""
INSERT INTO ff.ready (
       route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms)
SELECT e.route_id, e.created_at_ms, e.priority, e.partition_key, e.execution_id, e.deadline_at_ms
  FROM generate_series($1::bigint, $2::bigint) AS n
  JOIN ff.exec_core e ON (e.partition_key, e.execution_id) = ({_home("n")}, {_execution("n")})
"""
_LEASED: Final = f"""
INSERT INTO ff.lease (
       partition_key, attempt_index, execution_id, lease_id, lease_epoch, lease_expires_at_ms,
       last_mutation_at_ms, attempt_started_at_ms, attempt_timeout_at_ms, lease_reclaim_count,
       attempt_recorded, attempt_type, worker_id, worker_instance_id)
SELECT {_home("n")}, 0, {_execution("n")}, {_UUID % ("a000", "n")}, 1, ff.now_ms() + 86400000,
       ff.now_ms(), ff.now_ms() - 1000, ff.now_ms() + 86400000, 0, false, 'initial', 'w', 'w-1'
  FROM generate_series($1::bigint, $2::bigint) AS n
"""
_TOLD: Final = """
WITH ended AS (
    SELECT *, row_number() OVER () AS n FROM ff.execution WHERE lifecycle_phase = 'terminal'
), attempted AS (
    INSERT INTO ff.attempt (
           partition_key, execution_id, attempt_index, lease_id, lease_epoch, started_at_ms,
           ended_at_ms, attempt_type, outcome, worker_id, worker_instance_id)
    SELECT partition_key, execution_id, 0, lease_id, 1, attempt_started_at_ms, terminal_at_ms,
           'initial', 'success', 'w', 'w-1' FROM ended
), leased AS (
    INSERT INTO ff.lease_event (
           execution_id, lease_id, route_id, lease_epoch, occurred_at_ms, attempt_index,
           partition_key, event_type, worker_instance_id)
    SELECT execution_id, lease_id, route_id, 1, terminal_at_ms, 0, partition_key, 'acquired', 'w-1'
      FROM ended
), completed AS (
    INSERT INTO ff.completion_event (
           execution_id, route_id, created_at_ms, occurred_at_ms, partition_key, outcome, flow_id,
           dispatched_at_ms)
    SELECT execution_id, route_id, created_at_ms, terminal_at_ms, partition_key, 'success', flow_id,
           CASE WHEN flow_id IS NOT NULL THEN terminal_at_ms END FROM ended
), operated AS (
    INSERT INTO ff.operator_event (occurred_at_ms, partition_key, event_type, actor, details)
    SELECT terminal_at_ms, partition_key, 'lane_state_changed', 'crowd', '{}' FROM ended
     WHERE n % 20 = 0
)
INSERT INTO ff.worker_registry_event (
       partition_key, namespace, worker_instance_id, event_at_ms, event_kind, worker_id)
SELECT partition_key, 'default', 'w-' || n, terminal_at_ms, 'heartbeat', 'w' FROM ended
 WHERE n % 20 = 0
"""
_FLOWS: Final = """
WITH flows AS (
    SELECT partition_key, flow_id, count(*)::integer AS members,
           count(*) FILTER (WHERE lifecycle_phase = 'terminal')::integer AS ended,
           bool_or(flow_cancelled) AS cancelled
      FROM ff.execution WHERE flow_id IS NOT NULL GROUP BY partition_key, flow_id
), cores AS (
    INSERT INTO ff.flow_core (
           partition_key, flow_id, flow_kind, namespace, public_flow_state, graph_revision,
           node_count, edge_count, created_at_ms, last_mutation_at_ms, terminal_at_ms,
           cancellation_policy)
    SELECT partition_key, flow_id, 'chain', 'default',
           CASE WHEN cancelled THEN 'cancelled' ELSE 'open' END, 2 * members - 1, members,
           members - 1, ff.now_ms(), ff.now_ms(), CASE WHEN cancelled THEN ff.now_ms() END,
           CASE WHEN cancelled THEN 'cancel_all' END
      FROM flows
), owed AS (
    INSERT INTO ff.cancel_backlog (
           partition_key, flow_id, requested_at_ms, grace_until_ms, requester, reason,
           cancellation_policy)
    SELECT partition_key, flow_id, ff.now_ms(), ff.now_ms() + 86400000, 'crowd', 'crowd',
           'cancel_all' FROM flows WHERE cancelled
), members AS (
    INSERT INTO ff.cancel_backlog_member (partition_key, flow_id, execution_id)
    SELECT partition_key, flow_id, execution_id FROM ff.execution WHERE flow_cancelled
), links AS (
    SELECT e.*, lag(e.execution_id) OVER (PARTITION BY e.partition_key, e.flow_id
                                              ORDER BY e.execution_id) AS before
      FROM ff.execution e WHERE e.flow_id IS NOT NULL
), edges AS (
    INSERT INTO ff.edge (
           partition_key, flow_id, edge_id, upstream_eid, group_id, created_at_ms,
           applied_at_ms, edge_state, resolution, resolved_outcome)
    SELECT partition_key, flow_id, execution_id, before, execution_id, ff.now_ms(), ff.now_ms(),
           'applied', CASE lifecycle_phase WHEN 'terminal' THEN 'satisfied' ELSE 'unresolved' END,
           CASE lifecycle_phase WHEN 'terminal' THEN 'success' END
      FROM links WHERE before IS NOT NULL
), groups AS (
    INSERT INTO ff.edge_group (
           partition_key, flow_id, group_id, waiter_eid, waits_as, fired_at_ms, success_count,
           running_count, group_state)
    SELECT partition_key, flow_id, execution_id, execution_id, 'member',
           CASE lifecycle_phase WHEN 'terminal' THEN ff.now_ms() END,
           (lifecycle_phase = 'terminal')::integer, (lifecycle_phase <> 'terminal')::integer,
           CASE lifecycle_phase WHEN 'terminal' THEN 'satisfied' ELSE 'pending' END
      FROM links WHERE before IS NOT NULL
)
INSERT INTO ff.flow_summary (
       partition_key, flow_id, total_members, sampled_members, members_completed, members_failed,
       members_cancelled, members_expired, members_skipped, members_active, members_suspended,
       members_waiting, members_delayed, members_rate_limited, members_waiting_children,
       public_flow_state, last_summary_update_at_ms)
SELECT partition_key, flow_id, members, members, ended, 0, 0, 0, 0, 0, 0, members - ended, 0, 0, 0,
       CASE WHEN ended = members THEN 'completed' ELSE 'running' END, ff.now_ms() + 86400000
  FROM flows
"""
_PROMISED: Final = f"""
INSERT INTO ff.claim_grant (
       partition_key, grant_id, execution_id, kind, worker_id, worker_instance_id, lane_id,
       worker_capabilities, grant_ttl_ms, issued_at_ms, expires_at_ms, lease_epoch)
SELECT {_home("n")}, int8send(n), {_execution("n")}, 'claim', 'elsewhere', 'elsewhere-1', 'default',
       '{{}}', 86400000, ff.now_ms(), ff.now_ms() + 86400000, 0
  FROM generate_series($1::bigint, $2::bigint) AS n
"""
_UNTENDED: Final = """
SELECT format('ALTER TABLE ff.%I SET (autovacuum_enabled = off)', tablename)
  FROM pg_tables WHERE schemaname = 'ff'
"""


async def crowded(db: Connection, *, ended: int, live: int) -> None:
    """So many that ended, so many of each kind that live, and nothing that is due.

    No table has statistics then, nor gets any by itself.
    """
    for row in await db.fetch(_UNTENDED):
        await db.execute(row[0])
    await db.execute(_BEFORE)
    first = FLOW
    for state, count in (
        ("ended", ended),
        ("waiting", live),
        ("delayed", live),
        ("running", live),
        ("held", live),
        ("parked", FLOW),
    ):
        last = first + count - 1
        await db.execute(_BODIES, first, last)
        await db.execute(_CORES, first, last, state)
        if state == "waiting":
            await db.execute(_QUEUED, first, last)
        if state == "running":
            await db.execute(_LEASED, first, last)
        if state == "delayed":
            await db.execute(_PROMISED, first, first + live // 10)
        first = last + 1
    await db.execute(_TOLD)
    await db.execute(_FLOWS)


async def analyzed(db: Connection) -> None:
    """The tables have statistics, and their dead rows are gone."""
    await db.execute("VACUUM ANALYZE")


_DUE: Final = f"""
UPDATE ff.exec_core SET delay_until_ms = 1
 WHERE (partition_key, execution_id) IN (
           SELECT partition_key, execution_id FROM ff.execution
            WHERE delay_until_ms IS NOT NULL LIMIT {FLOW});
WITH running AS (
    SELECT partition_key, execution_id, row_number() OVER () AS n FROM ff.execution
     WHERE lifecycle_phase = 'active' LIMIT {3 * FLOW}
)
UPDATE ff.lease e
   SET lease_expires_at_ms = CASE WHEN n <= {FLOW} THEN 1 ELSE lease_expires_at_ms END,
       attempt_timeout_at_ms = CASE WHEN n BETWEEN {FLOW} + 1 AND {2 * FLOW} THEN 1
                                    ELSE attempt_timeout_at_ms END,
       worker_instance_id = CASE WHEN n > {2 * FLOW} THEN 'dead' ELSE worker_instance_id END
  FROM running r WHERE (e.partition_key, e.execution_id) = (r.partition_key, r.execution_id);
WITH late AS (
    UPDATE ff.exec_core SET deadline_at_ms = 1
     WHERE (partition_key, execution_id) IN (
               SELECT partition_key, execution_id FROM ff.execution
                WHERE eligibility_state = 'eligible_now' AND flow_id IS NULL LIMIT {FLOW})
 RETURNING partition_key, execution_id
)
UPDATE ff.ready r SET deadline_at_ms = 1
  FROM late WHERE (r.partition_key, r.execution_id) = (late.partition_key, late.execution_id);
UPDATE ff.exec_core SET created_at_ms = 1, terminal_at_ms = 1
 WHERE (partition_key, execution_id) IN (
           SELECT partition_key, execution_id FROM ff.execution
            WHERE lifecycle_phase = 'terminal' AND flow_id IS NULL LIMIT {FLOW});
UPDATE ff.completion_event SET dispatched_at_ms = NULL
 WHERE event_id IN (SELECT event_id FROM ff.completion_event
                     WHERE flow_id IS NOT NULL LIMIT {FLOW});
UPDATE ff.edge SET resolution = 'unresolved', resolved_outcome = NULL
 WHERE (partition_key, upstream_eid) IN (
           SELECT partition_key, execution_id FROM ff.completion_event
            WHERE flow_id IS NOT NULL AND dispatched_at_ms IS NULL);
UPDATE ff.edge_group SET group_state = 'pending', fired_at_ms = NULL, success_count = 0,
                         running_count = 1
 WHERE (partition_key, group_id) IN (
           SELECT partition_key, group_id FROM ff.edge
            WHERE resolution = 'unresolved') AND group_state = 'satisfied';
INSERT INTO ff.pending_cancel_groups (partition_key, flow_id, group_id, enqueued_at_ms)
SELECT partition_key, flow_id, group_id, ff.now_ms() FROM ff.edge_group
 WHERE group_state = 'pending' LIMIT {FLOW};
UPDATE ff.edge_group g
   SET cancel_siblings_pending_flag = true, cancel_siblings_reason = 'parent_ended',
       cancel_siblings_pending_members = ARRAY[g.waiter_eid]
  FROM (SELECT * FROM ff.pending_cancel_groups LIMIT {FLOW // 2}) AS p
 WHERE (g.partition_key, g.group_id) = (p.partition_key, p.group_id);
WITH first AS (
    SELECT partition_key, execution_id FROM ff.execution e
     WHERE eligibility_state = 'blocked_by_dependencies'
       AND NOT EXISTS (SELECT FROM ff.edge d WHERE (d.partition_key, d.group_id)
                                                 = (e.partition_key, e.execution_id))
     LIMIT {FLOW}
), ended AS (
    UPDATE ff.exec_core e
       SET lifecycle_phase = 'terminal', terminal_outcome = 'success', terminal_at_ms = ff.now_ms(),
           eligibility_state = 'not_applicable', blocking_reason = 'none'
      FROM first WHERE (e.partition_key, e.execution_id) = (first.partition_key, first.execution_id)
 RETURNING e.*
)
INSERT INTO ff.completion_event (
       execution_id, route_id, created_at_ms, occurred_at_ms, partition_key, outcome, flow_id,
       dispatched_at_ms)
SELECT execution_id, route_id, created_at_ms, ff.now_ms(), partition_key, 'success', flow_id, 1
  FROM ended;
INSERT INTO ff.flow_core (
       partition_key, flow_id, flow_kind, namespace, created_at_ms, last_mutation_at_ms)
VALUES (0, '00000000-0000-7000-b000-000000000000', 'empty', 'default', 1, 1);
UPDATE ff.cancel_backlog SET grace_until_ms = 1;
DELETE FROM ff.cancel_backlog_member
 WHERE execution_id = (SELECT execution_id FROM ff.cancel_backlog_member LIMIT 1);
WITH blocked AS (
    UPDATE ff.exec_core SET eligibility_state = 'blocked_by_route',
                            blocking_reason = 'waiting_for_capable_worker'
     WHERE (partition_key, execution_id) IN (
               SELECT partition_key, execution_id FROM ff.execution
                WHERE eligibility_state = 'eligible_now' AND deadline_at_ms > 1 LIMIT {FLOW})
 RETURNING partition_key, execution_id
)
DELETE FROM ff.ready r USING blocked
 WHERE (r.partition_key, r.execution_id) = (blocked.partition_key, blocked.execution_id);
INSERT INTO ff.worker_registry (
       partition_key, namespace, worker_instance_id, worker_id, lanes, capabilities, kinds,
       concurrency, last_heartbeat_ms, liveness_ttl_ms, registered_at_ms)
SELECT 0, 'default', 'w-' || seen_ms, 'w', '{{default}}', '{{}}', '{{job}}', 1, seen_ms, 86400000, 1
  FROM unnest(ARRAY[1, ff.now_ms()]) AS seen_ms;
INSERT INTO ff.worker_registry (
       partition_key, namespace, worker_instance_id, worker_id, lanes, capabilities, kinds,
       concurrency, last_heartbeat_ms, liveness_ttl_ms, registered_at_ms, liveness_lock,
       lock_missed_at_ms)
VALUES (0, 'default', 'dead', 'w', '{{default}}', '{{}}', '{{job}}', 1, ff.now_ms(), 86400000, 1, 1,
        1);
INSERT INTO ff.waiter (topic, waiter_id, waiting_until_ms) VALUES ('lane:default', 'gone', 1);
UPDATE ff.flow_summary SET last_summary_update_at_ms = 1
 WHERE (partition_key, flow_id) IN (SELECT partition_key, flow_id FROM ff.flow_summary
                                     WHERE public_flow_state = 'running' LIMIT {FLOW});
UPDATE ff.claim_grant SET expires_at_ms = 1
 WHERE grant_id IN (SELECT grant_id FROM ff.claim_grant LIMIT {FLOW});
UPDATE ff.operator_event SET occurred_at_ms = 1
 WHERE event_id IN (SELECT event_id FROM ff.operator_event LIMIT {FLOW});
UPDATE ff.worker_registry_event SET event_at_ms = 1
 WHERE worker_instance_id IN (SELECT worker_instance_id FROM ff.worker_registry_event LIMIT {FLOW});
INSERT INTO ff.web_session VALUES (gen_random_uuid(), '\\x01', '\\x02', '', '', 1, 1, 1, 1);
INSERT INTO ff.activity VALUES (60000, 1, 1, 'success', 1, '{{1}}', '{{1}}');
INSERT INTO ff.activity_place (event_id, next_event_id, next_xid)
SELECT max(event_id) - {FLOW}, max(event_id), 0 FROM ff.completion_event;
WITH begun AS (
    INSERT INTO ff.bulk_action (bulk_id, action, arguments, filter, state, actor, reason, total,
                                started_at_ms)
    VALUES (gen_random_uuid(), 'cancel', '{{}}', '{{}}', 'running', 'crowd', 'x', 1, 1)
 RETURNING bulk_id
)
INSERT INTO ff.bulk_batch (bulk_id, batch_no, execution_ids)
SELECT bulk_id, 0, ARRAY['{{fp:0}}:' || gen_random_uuid()] FROM begun;
"""


_SEEN_AS_DEAD: Final = "SELECT bool_and(NOT connected) FROM ff.worker_liveness"


async def a_few_due(db: Connection) -> None:
    """There is a little to do for every sweep."""
    await db.execute(_DUE)
    # A server that has just started takes every worker for alive.
    await eventually(lambda: db.fetchval(_SEEN_AS_DEAD), within=10)
