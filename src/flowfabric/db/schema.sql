-- The schema `ff` after all migrations and functions.
-- Written by `python -m flowfabric.db.schema`; a test compares it with the migrated database.

CREATE DOMAIN ff.attempt_outcome AS text CONSTRAINT attempt_outcome CHECK ((VALUE = ANY (ARRAY['success'::text, 'failed'::text, 'retry'::text, 'cancelled'::text, 'expired'::text, 'skipped'::text, 'interrupted'::text, 'waiting_children'::text, 'suspended'::text, 'restarted'::text, 'lease_expired_reclaimable'::text, 'lease_revoked'::text, 'interrupted_reclaimed'::text])));

CREATE DOMAIN ff.attempt_state AS text CONSTRAINT attempt_state CHECK ((VALUE = ANY (ARRAY['none'::text, 'pending_first_attempt'::text, 'attempt_interrupted'::text, 'pending_retry_attempt'::text, 'pending_replay_attempt'::text, 'attempt_terminal'::text])));

CREATE DOMAIN ff.attempt_type AS text CONSTRAINT attempt_type CHECK ((VALUE = ANY (ARRAY['initial'::text, 'retry'::text, 'reclaim'::text, 'replay'::text, 'restart'::text])));

CREATE DOMAIN ff.blocking_reason AS text CONSTRAINT blocking_reason CHECK ((VALUE = ANY (ARRAY['none'::text, 'waiting_for_worker'::text, 'waiting_for_retry_backoff'::text, 'waiting_for_resume_delay'::text, 'waiting_for_delay'::text, 'waiting_for_signal'::text, 'waiting_for_approval'::text, 'waiting_for_callback'::text, 'waiting_for_tool_result'::text, 'waiting_for_children'::text, 'waiting_for_budget'::text, 'waiting_for_quota'::text, 'waiting_for_capable_worker'::text, 'waiting_for_locality_match'::text, 'paused_by_operator'::text, 'paused_by_policy'::text, 'paused_by_flow_cancel'::text])));

CREATE DOMAIN ff.cancellation_policy AS text CONSTRAINT cancellation_policy CHECK ((VALUE = ANY (ARRAY['cancel_flow_only'::text, 'cancel_all'::text, 'cancel_pending'::text])));

CREATE DOMAIN ff.completion_outcome AS text CONSTRAINT completion_outcome CHECK ((VALUE = ANY (ARRAY['success'::text, 'failed'::text, 'cancelled'::text, 'expired'::text, 'skipped'::text, 'resumable'::text])));

CREATE DOMAIN ff.derived_flow_state AS text CONSTRAINT derived_flow_state CHECK ((VALUE = ANY (ARRAY['open'::text, 'running'::text, 'blocked'::text, 'completed'::text, 'failed'::text, 'cancelled'::text])));

CREATE DOMAIN ff.edge_resolution AS text CONSTRAINT edge_resolution CHECK ((VALUE = ANY (ARRAY['unresolved'::text, 'satisfied'::text, 'impossible'::text])));

CREATE DOMAIN ff.edge_state AS text CONSTRAINT edge_state CHECK ((VALUE = ANY (ARRAY['pending'::text, 'applied'::text])));

CREATE DOMAIN ff.eligibility_state AS text CONSTRAINT eligibility_state CHECK ((VALUE = ANY (ARRAY['eligible_now'::text, 'not_eligible_until_time'::text, 'blocked_by_dependencies'::text, 'blocked_by_budget'::text, 'blocked_by_quota'::text, 'blocked_by_route'::text, 'blocked_by_lane_state'::text, 'blocked_by_operator'::text, 'not_applicable'::text])));

CREATE DOMAIN ff.flow_state AS text CONSTRAINT flow_state CHECK ((VALUE = ANY (ARRAY['open'::text, 'cancelled'::text])));

CREATE DOMAIN ff.group_policy_kind AS text CONSTRAINT group_policy_kind CHECK ((VALUE = ANY (ARRAY['all_of'::text, 'any_of'::text, 'quorum'::text])));

CREATE DOMAIN ff.group_state AS text CONSTRAINT group_state CHECK ((VALUE = ANY (ARRAY['pending'::text, 'satisfied'::text, 'impossible'::text])));

CREATE DOMAIN ff.journal_kind AS text CONSTRAINT journal_kind CHECK ((VALUE = ANY (ARRAY['step'::text, 'now'::text, 'patch'::text, 'version'::text, 'sleep'::text, 'signal'::text, 'waitpoint'::text, 'wait'::text, 'select'::text, 'children'::text, 'compensation'::text, 'mark'::text])));

CREATE DOMAIN ff.journal_state AS text CONSTRAINT journal_state CHECK ((VALUE = ANY (ARRAY['open'::text, 'done'::text, 'failed'::text])));

CREATE DOMAIN ff.lease_event_reason AS text CONSTRAINT lease_event_reason CHECK ((VALUE = ANY (ARRAY['completed'::text, 'failed'::text, 'retry'::text, 'delay'::text, 'waiting_children'::text, 'suspended'::text, 'restarted'::text, 'cancelled'::text, 'released'::text, 'operator'::text, 'disconnected'::text])));

CREATE DOMAIN ff.lease_event_type AS text CONSTRAINT lease_event_type CHECK ((VALUE = ANY (ARRAY['acquired'::text, 'renewed'::text, 'expired'::text, 'reclaimed'::text, 'revoked'::text])));

CREATE DOMAIN ff.lifecycle_phase AS text CONSTRAINT lifecycle_phase CHECK ((VALUE = ANY (ARRAY['runnable'::text, 'suspended'::text, 'terminal'::text])));

CREATE DOMAIN ff.on_satisfied AS text CONSTRAINT on_satisfied CHECK ((VALUE = ANY (ARRAY['cancel_remaining'::text, 'let_run'::text])));

CREATE DOMAIN ff.resolved_outcome AS text CONSTRAINT resolved_outcome CHECK ((VALUE = ANY (ARRAY['success'::text, 'failed'::text, 'cancelled'::text, 'expired'::text, 'skipped'::text])));

CREATE DOMAIN ff.sibling_cancel_reason AS text CONSTRAINT sibling_cancel_reason CHECK ((VALUE = ANY (ARRAY['sibling_quorum_satisfied'::text, 'sibling_quorum_impossible'::text, 'parent_ended'::text])));

CREATE DOMAIN ff.terminal_outcome AS text CONSTRAINT terminal_outcome CHECK ((VALUE = ANY (ARRAY['none'::text, 'success'::text, 'failed'::text, 'cancelled'::text, 'expired'::text, 'skipped'::text])));

CREATE DOMAIN ff.waits_as AS text CONSTRAINT waits_as CHECK ((VALUE = ANY (ARRAY['member'::text, 'children'::text])));

CREATE TABLE ff.activity (
    step_ms bigint NOT NULL,
    begins_at_ms bigint NOT NULL,
    route_id bigint NOT NULL,
    outcome text NOT NULL,
    ended integer NOT NULL,
    waited integer[] NOT NULL,
    ran integer[] NOT NULL,
    CONSTRAINT activity_pkey PRIMARY KEY (step_ms, begins_at_ms, route_id, outcome),
    CONSTRAINT activity_outcome CHECK ((outcome = ANY (ARRAY['success'::text, 'failed'::text, 'cancelled'::text, 'expired'::text, 'skipped'::text])))
);
CREATE INDEX activity_time ON ff.activity USING btree (begins_at_ms);
COMMENT ON TABLE ff.activity IS 'How many executions of a route ended in each minute, and after a day in each hour, of the last 30 days.';
COMMENT ON COLUMN ff.activity.waited IS 'Executions by how long they waited for their first start: two buckets for each doubling of a millisecond.';
COMMENT ON COLUMN ff.activity.ran IS 'Executions by how long their last attempt ran, as waited.';

CREATE TABLE ff.activity_place (
    singleton boolean DEFAULT true NOT NULL,
    event_id bigint NOT NULL,
    next_event_id bigint NOT NULL,
    next_xid bigint NOT NULL,
    CONSTRAINT activity_place_pkey PRIMARY KEY (singleton),
    CONSTRAINT activity_place_singleton CHECK (singleton)
);
COMMENT ON TABLE ff.activity_place IS 'Up to which completion event is counted.';
COMMENT ON COLUMN ff.activity_place.next_event_id IS 'Up to here is counted next, once every transaction with an id below next_xid has ended.';

CREATE TABLE ff.api_token (
    token_id uuid NOT NULL,
    token_hash bytea NOT NULL,
    label text NOT NULL,
    role text NOT NULL,
    namespaces text[] NOT NULL,
    hide_payloads boolean NOT NULL,
    created_by text NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    last_used_at_ms bigint,
    revoked_at_ms bigint,
    revoked_by text,
    CONSTRAINT api_token_pkey PRIMARY KEY (token_id),
    CONSTRAINT api_token_namespaces CHECK ((cardinality(namespaces) > 0)),
    CONSTRAINT api_token_role CHECK ((role = ANY (ARRAY['reader'::text, 'client'::text, 'worker'::text, 'operator'::text, 'admin'::text])))
);
CREATE UNIQUE INDEX api_token_hash ON ff.api_token USING btree (token_hash);
COMMENT ON TABLE ff.api_token IS 'Tokens of the server: a hash of each, and what its holder may do.';
COMMENT ON COLUMN ff.api_token.token_hash IS 'SHA-256 of the token, which itself is stored nowhere.';
COMMENT ON COLUMN ff.api_token.namespaces IS 'The namespaces that the holder sees; * stands for all.';
COMMENT ON COLUMN ff.api_token.last_used_at_ms IS 'Exact to the minute.';

CREATE TABLE ff.attempt (
    partition_key smallint NOT NULL,
    attempt_index integer NOT NULL,
    execution_id uuid NOT NULL,
    lease_id uuid NOT NULL,
    lease_epoch bigint NOT NULL,
    started_at_ms bigint NOT NULL,
    ended_at_ms bigint NOT NULL,
    attempt_type ff.attempt_type NOT NULL,
    outcome ff.attempt_outcome NOT NULL,
    worker_id text NOT NULL,
    worker_instance_id text NOT NULL,
    failure_reason text,
    failure_category text,
    failure_detail text,
    result bytea,
    result_encoding text,
    CONSTRAINT attempt_pkey PRIMARY KEY (partition_key, execution_id, attempt_index)
);
COMMENT ON TABLE ff.attempt IS 'One row per attempt that ended or was interrupted. The attempt that runs now is described by its row in ff.lease.';
COMMENT ON COLUMN ff.attempt.lease_id IS 'The lease that the attempt ended under.';
COMMENT ON COLUMN ff.attempt.ended_at_ms IS 'When the attempt ended or was last interrupted.';
COMMENT ON COLUMN ff.attempt.result_encoding IS 'How the result is encoded: json, msgpack, bytes, or the name of a codec; NULL: as the payload.';

CREATE TABLE ff.budget_policy (
    partition_key smallint NOT NULL,
    budget_id uuid NOT NULL,
    scope_type text NOT NULL,
    scope_id text NOT NULL,
    enforcement_mode text NOT NULL,
    policy_json jsonb NOT NULL,
    breach_count bigint DEFAULT 0 NOT NULL,
    soft_breach_count bigint DEFAULT 0 NOT NULL,
    last_breach_at_ms bigint,
    last_breach_dim text,
    next_reset_at_ms bigint,
    last_reset_at_ms bigint,
    reset_count bigint DEFAULT 0 NOT NULL,
    period_no bigint DEFAULT 0 NOT NULL,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    CONSTRAINT budget_policy_pkey PRIMARY KEY (partition_key, budget_id),
    CONSTRAINT budget_policy_enforcement_mode CHECK ((enforcement_mode = ANY (ARRAY['strict'::text, 'warn'::text])))
) WITH (fillfactor=50);
CREATE INDEX budget_policy_reset ON ff.budget_policy USING btree (next_reset_at_ms) WHERE (next_reset_at_ms IS NOT NULL);
COMMENT ON TABLE ff.budget_policy IS 'One row per budget. Its lock is taken by everything that changes the usage, the ledger or the period.';
COMMENT ON COLUMN ff.budget_policy.scope_type IS 'A label of what is limited, such as tenant; not read by the engine.';
COMMENT ON COLUMN ff.budget_policy.policy_json IS 'hard_limits and soft_limits by dimension (0: no limit), reset_interval_ms (0: never), and the labels on_hard_limit and on_soft_limit.';
COMMENT ON COLUMN ff.budget_policy.breach_count IS 'How often a report would have passed a hard limit, since the budget was created.';
COMMENT ON COLUMN ff.budget_policy.soft_breach_count IS 'Reports after which a dimension was over its soft limit, since the budget was created.';
COMMENT ON COLUMN ff.budget_policy.last_breach_dim IS 'The dimension of the last hard breach of this period.';
COMMENT ON COLUMN ff.budget_policy.next_reset_at_ms IS 'NULL: the budget is not periodic.';
COMMENT ON COLUMN ff.budget_policy.period_no IS 'Grows with every reset; the ledger has it too.';

CREATE TABLE ff.budget_usage (
    partition_key smallint NOT NULL,
    budget_id uuid NOT NULL,
    dimensions_key text NOT NULL,
    current_value bigint NOT NULL,
    last_reset_at_ms bigint,
    updated_at_ms bigint NOT NULL,
    CONSTRAINT budget_usage_pkey PRIMARY KEY (partition_key, budget_id, dimensions_key),
    CONSTRAINT budget_usage_not_negative CHECK ((current_value >= 0))
) WITH (fillfactor=50);
COMMENT ON TABLE ff.budget_usage IS 'One row per budget and dimension: how much was used in this period. Also of budgets that nobody has created.';
COMMENT ON COLUMN ff.budget_usage.dimensions_key IS 'The name of the dimension, such as tokens.';

CREATE TABLE ff.budget_usage_by_exec (
    partition_key smallint NOT NULL,
    budget_id uuid NOT NULL,
    execution_partition smallint NOT NULL,
    execution_id uuid NOT NULL,
    dimensions_key text NOT NULL,
    delta_total bigint NOT NULL,
    period_no bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    unsettled boolean DEFAULT true NOT NULL,
    CONSTRAINT budget_usage_by_exec_pkey PRIMARY KEY (partition_key, budget_id, execution_id, execution_partition, dimensions_key)
);
CREATE INDEX budget_usage_by_exec_execution ON ff.budget_usage_by_exec USING btree (execution_id);
CREATE INDEX budget_usage_by_exec_unsettled ON ff.budget_usage_by_exec USING btree (uuid_hash(execution_id)) WHERE unsettled;
COMMENT ON TABLE ff.budget_usage_by_exec IS 'The ledger: what each execution has spent of a budget by record_spend, so that it can be given back.';
COMMENT ON COLUMN ff.budget_usage_by_exec.execution_partition IS 'The partition of the execution.';
COMMENT ON COLUMN ff.budget_usage_by_exec.period_no IS 'The period of the budget that the amount belongs to. After a reset the amount is not in the usage any more.';
COMMENT ON COLUMN ff.budget_usage_by_exec.unsettled IS 'The execution has not been seen to have ended: if it loses a race, the amount is given back.';

CREATE TABLE ff.budget_usage_dedup (
    partition_key smallint NOT NULL,
    budget_id uuid NOT NULL,
    dedup_key text NOT NULL,
    outcome_json jsonb,
    applied_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    CONSTRAINT budget_usage_dedup_pkey PRIMARY KEY (partition_key, budget_id, dedup_key)
);
CREATE INDEX budget_usage_dedup_expiry ON ff.budget_usage_dedup USING btree (expires_at_ms);
COMMENT ON TABLE ff.budget_usage_dedup IS 'One row per report that was counted under a key: within 24 hours the key does not count again.';
COMMENT ON COLUMN ff.budget_usage_dedup.dedup_key IS 'Of the caller; keys of the ledger begin with spend:.';
COMMENT ON COLUMN ff.budget_usage_dedup.outcome_json IS 'The answer of the first call.';

CREATE TABLE ff.budget_usage_history (
    partition_key smallint NOT NULL,
    budget_id uuid NOT NULL,
    dimensions_key text NOT NULL,
    begins_at_ms bigint NOT NULL,
    step_ms bigint NOT NULL,
    used bigint NOT NULL,
    peak bigint NOT NULL,
    CONSTRAINT budget_usage_history_pkey PRIMARY KEY (partition_key, budget_id, dimensions_key, begins_at_ms, step_ms)
);
CREATE INDEX budget_usage_history_age ON ff.budget_usage_history USING btree (step_ms, begins_at_ms);
COMMENT ON TABLE ff.budget_usage_history IS 'How much of a budget was used in each minute, and after a day in each hour, of the last 30 days. A minute in which the usage stayed as it was has no row.';
COMMENT ON COLUMN ff.budget_usage_history.step_ms IS 'A minute or an hour.';
COMMENT ON COLUMN ff.budget_usage_history.used IS 'The usage when it was looked at last.';
COMMENT ON COLUMN ff.budget_usage_history.peak IS 'The highest usage that was seen.';

CREATE TABLE ff.budget_usage_place (
    singleton boolean DEFAULT true NOT NULL,
    noted_up_to_ms bigint NOT NULL,
    CONSTRAINT budget_usage_place_pkey PRIMARY KEY (singleton),
    CONSTRAINT budget_usage_place_singleton CHECK (singleton)
);
COMMENT ON TABLE ff.budget_usage_place IS 'Up to which instant the usage of budgets is in budget_usage_history.';

CREATE TABLE ff.bulk_action (
    bulk_id uuid NOT NULL,
    namespace text,
    action text NOT NULL,
    arguments jsonb NOT NULL,
    filter jsonb NOT NULL,
    state text NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    total integer NOT NULL,
    done integer DEFAULT 0 NOT NULL,
    changed integer DEFAULT 0 NOT NULL,
    repeated integer DEFAULT 0 NOT NULL,
    refused jsonb DEFAULT '{}'::jsonb NOT NULL,
    started_at_ms bigint NOT NULL,
    last_batch_at_ms bigint,
    ended_at_ms bigint,
    CONSTRAINT bulk_action_pkey PRIMARY KEY (bulk_id),
    CONSTRAINT bulk_action_action CHECK ((action = ANY (ARRAY['cancel'::text, 'replay'::text, 'priority'::text, 'block'::text, 'unblock'::text, 'tag'::text, 'revoke'::text, 'resume'::text]))),
    CONSTRAINT bulk_action_ended CHECK (((state = 'running'::text) = (ended_at_ms IS NULL))),
    CONSTRAINT bulk_action_state CHECK ((state = ANY (ARRAY['running'::text, 'stopped'::text, 'done'::text])))
);
CREATE INDEX bulk_action_running ON ff.bulk_action USING btree (bulk_id) WHERE (state = 'running'::text);
COMMENT ON TABLE ff.bulk_action IS 'Changes of many executions: what is done, by whom, and how far it is.';
COMMENT ON COLUMN ff.bulk_action.namespace IS 'Of all its executions; NULL: of any.';
COMMENT ON COLUMN ff.bulk_action.filter IS 'What was searched for, in words; the executions themselves are in bulk_batch.';
COMMENT ON COLUMN ff.bulk_action.repeated IS 'How many executions were so before.';
COMMENT ON COLUMN ff.bulk_action.refused IS 'How many could not be changed, by the code of the error.';

CREATE TABLE ff.bulk_batch (
    bulk_id uuid NOT NULL,
    batch_no integer NOT NULL,
    execution_ids text[] NOT NULL,
    results text[],
    CONSTRAINT bulk_batch_pkey PRIMARY KEY (bulk_id, batch_no)
);
COMMENT ON TABLE ff.bulk_batch IS 'The executions of a bulk action that change in one transaction.';
COMMENT ON COLUMN ff.bulk_batch.results IS 'What became of each: changed, repeated, or the code of the error. NULL until the batch is done.';

CREATE TABLE ff.cancel_backlog (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    requested_at_ms bigint NOT NULL,
    grace_until_ms bigint NOT NULL,
    requester text NOT NULL,
    reason text NOT NULL,
    cancellation_policy text NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    CONSTRAINT cancel_backlog_pkey PRIMARY KEY (partition_key, flow_id),
    CONSTRAINT cancel_backlog_status CHECK ((status = 'pending'::text))
);
CREATE INDEX cancel_backlog_due ON ff.cancel_backlog USING btree (grace_until_ms);
COMMENT ON TABLE ff.cancel_backlog IS 'Cancelled flows with members that have not ended yet.';
COMMENT ON COLUMN ff.cancel_backlog.grace_until_ms IS 'Until then the call that cancelled the flow ends its members; afterwards a sweep ends them.';

CREATE TABLE ff.cancel_backlog_member (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    CONSTRAINT cancel_backlog_member_pkey PRIMARY KEY (partition_key, flow_id, execution_id)
);
CREATE INDEX cancel_backlog_member_execution ON ff.cancel_backlog_member USING btree (partition_key, execution_id);
COMMENT ON TABLE ff.cancel_backlog_member IS 'The members that a cancelled flow still has to end; a row stays until the member has ended.';

CREATE TABLE ff.claim_grant (
    partition_key smallint NOT NULL,
    grant_id bytea NOT NULL,
    execution_id uuid NOT NULL,
    kind text NOT NULL,
    worker_id text NOT NULL,
    worker_instance_id text NOT NULL,
    lane_id text NOT NULL,
    worker_capabilities text[] NOT NULL,
    capability_hash text,
    route_snapshot_json jsonb,
    admission_summary text,
    grant_ttl_ms bigint NOT NULL,
    issued_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    lease_epoch bigint NOT NULL,
    CONSTRAINT claim_grant_pkey PRIMARY KEY (partition_key, grant_id),
    CONSTRAINT claim_grant_kind CHECK ((kind = ANY (ARRAY['claim'::text, 'reclaim'::text])))
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=500);
CREATE INDEX claim_grant_execution ON ff.claim_grant USING btree (partition_key, execution_id);
CREATE INDEX claim_grant_expiry ON ff.claim_grant USING btree (expires_at_ms);
COMMENT ON TABLE ff.claim_grant IS 'Grants of remote schedulers. An unexpired grant of kind claim reserves its execution for one worker; an expired grant has no effect, nor has one that is used up (see unused_grant).';
COMMENT ON COLUMN ff.claim_grant.grant_id IS 'SHA-256 of the text of the grant; the text itself is not stored.';
COMMENT ON COLUMN ff.claim_grant.kind IS 'claim reserves a claimable execution; reclaim lets a worker take over one whose lease was lost.';
COMMENT ON COLUMN ff.claim_grant.route_snapshot_json IS 'Given by the scheduler, for its own records.';
COMMENT ON COLUMN ff.claim_grant.admission_summary IS 'Given by the scheduler, for its own records.';
COMMENT ON COLUMN ff.claim_grant.lease_epoch IS 'The last epoch of the execution before the lease that the grant is for.';

CREATE TABLE ff.completion_event (
    event_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    execution_id uuid NOT NULL,
    route_id bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    occurred_at_ms bigint NOT NULL,
    partition_key smallint NOT NULL,
    outcome ff.completion_outcome NOT NULL,
    flow_id uuid,
    tags jsonb,
    dispatched_at_ms bigint,
    CONSTRAINT completion_event_pkey PRIMARY KEY (event_id, partition_key)
);
CREATE INDEX completion_event_created ON ff.completion_event USING btree (route_id, created_at_ms, execution_id);
CREATE INDEX completion_event_undispatched ON ff.completion_event USING btree (event_id) WHERE ((dispatched_at_ms IS NULL) AND (flow_id IS NOT NULL));
COMMENT ON TABLE ff.completion_event IS 'Outbox of completions: one row each time an execution ends; a replayed execution has several. A row with outcome resumable says that a suspended execution can go on; no edge is resolved by such a row.';
COMMENT ON COLUMN ff.completion_event.event_id IS 'Ascending, with gaps; not in the order of commits. Readers must resolve gaps.';
COMMENT ON COLUMN ff.completion_event.created_at_ms IS 'When the execution was created: searches sort by it.';
COMMENT ON COLUMN ff.completion_event.dispatched_at_ms IS 'When the edges of the flow were resolved with this completion; NULL until then, and for executions outside flows.';

CREATE TABLE ff.edge (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    edge_id uuid NOT NULL,
    upstream_eid uuid NOT NULL,
    group_id uuid NOT NULL,
    min_event_id bigint DEFAULT 0 NOT NULL,
    resolved_event_id bigint,
    created_at_ms bigint NOT NULL,
    applied_at_ms bigint,
    resolved_at_ms bigint,
    edge_state ff.edge_state DEFAULT 'pending'::text NOT NULL,
    resolution ff.edge_resolution DEFAULT 'unresolved'::text NOT NULL,
    resolved_outcome ff.resolved_outcome,
    dependency_kind text DEFAULT 'success_only'::text NOT NULL,
    created_by text DEFAULT 'engine'::text NOT NULL,
    data_passing_ref text,
    CONSTRAINT edge_pkey PRIMARY KEY (partition_key, flow_id, edge_id),
    CONSTRAINT edge_dependency_kind CHECK ((dependency_kind = 'success_only'::text)),
    CONSTRAINT edge_resolved_by_an_outcome CHECK ((((resolution)::text = 'unresolved'::text) = (resolved_outcome IS NULL))),
    CONSTRAINT edge_resolves_once_applied CHECK ((((resolution)::text = 'unresolved'::text) OR ((edge_state)::text = 'applied'::text)))
) WITH (fillfactor=50);
CREATE INDEX edge_group_edges ON ff.edge USING btree (group_id);
CREATE UNIQUE INDEX edge_pair ON ff.edge USING btree (upstream_eid, partition_key, group_id);
ALTER TABLE ff.edge ALTER COLUMN upstream_eid SET (n_distinct=-1);
ALTER TABLE ff.edge ALTER COLUMN group_id SET (n_distinct=-1);
COMMENT ON TABLE ff.edge IS 'One row per dependency: once the edge is applied, the join group_id waits for the execution upstream_eid. The counters of edge_group are computed from the resolutions here.';
COMMENT ON COLUMN ff.edge.min_event_id IS 'Completions of the upstream up to this event do not resolve the edge: the upstream was replayed after them.';
COMMENT ON COLUMN ff.edge.resolved_event_id IS 'The completion event that resolved the edge.';
COMMENT ON COLUMN ff.edge.applied_at_ms IS 'Since when the join waits for the edge.';
COMMENT ON COLUMN ff.edge.data_passing_ref IS 'Set if the result of the upstream becomes the payload of the waiting execution, or with ''argument:NAME'' the argument of that name in its payload.';

CREATE TABLE ff.edge_group (
    partition_key smallint NOT NULL,
    group_id uuid NOT NULL,
    flow_id uuid NOT NULL,
    waiter_eid uuid NOT NULL,
    fired_at_ms bigint,
    k integer,
    expected_n integer,
    success_count integer DEFAULT 0 NOT NULL,
    fail_count integer DEFAULT 0 NOT NULL,
    skip_count integer DEFAULT 0 NOT NULL,
    running_count integer DEFAULT 0 NOT NULL,
    cancel_siblings_pending_flag boolean DEFAULT false NOT NULL,
    waits_as ff.waits_as NOT NULL,
    policy_kind ff.group_policy_kind DEFAULT 'all_of'::text NOT NULL,
    group_state ff.group_state DEFAULT 'pending'::text NOT NULL,
    on_satisfied ff.on_satisfied,
    cancel_siblings_reason ff.sibling_cancel_reason,
    cancel_siblings_pending_members uuid[],
    cancel_siblings_pending_losers uuid[],
    CONSTRAINT edge_group_pkey PRIMARY KEY (partition_key, group_id),
    CONSTRAINT edge_group_counts CHECK (((success_count >= 0) AND (fail_count >= 0) AND (skip_count >= 0) AND (running_count >= 0))),
    CONSTRAINT edge_group_disposition CHECK ((((policy_kind)::text = 'all_of'::text) = (on_satisfied IS NULL))),
    CONSTRAINT edge_group_fires_once CHECK ((((group_state)::text = 'pending'::text) = (fired_at_ms IS NULL))),
    CONSTRAINT edge_group_k CHECK (((((policy_kind)::text = 'quorum'::text) = (k IS NOT NULL)) AND (k >= 1)))
) WITH (fillfactor=50);
CREATE INDEX edge_group_waiter ON ff.edge_group USING btree (waiter_eid, partition_key);
ALTER TABLE ff.edge_group ALTER COLUMN waiter_eid SET (n_distinct=-1);
COMMENT ON TABLE ff.edge_group IS 'One row per join: a flow member waits for its upstreams, or a handler waits for its children.';
COMMENT ON COLUMN ff.edge_group.waiter_eid IS 'The execution that waits.';
COMMENT ON COLUMN ff.edge_group.fired_at_ms IS 'When the join was decided.';
COMMENT ON COLUMN ff.edge_group.k IS 'How many upstreams must succeed; only of a quorum.';
COMMENT ON COLUMN ff.edge_group.expected_n IS 'The join is not decided before it has this many edges.';
COMMENT ON COLUMN ff.edge_group.success_count IS 'Number of successful edges. This and the other counters can be recomputed from ff.edge.';
COMMENT ON COLUMN ff.edge_group.cancel_siblings_pending_flag IS 'Upstreams that are no longer needed are still to be found or cancelled.';
COMMENT ON COLUMN ff.edge_group.waits_as IS 'member: the execution waits for its upstreams before it runs. children: its handler waits for children.';
COMMENT ON COLUMN ff.edge_group.on_satisfied IS 'What happens to upstreams that still run when the join is decided; NULL for all_of.';
COMMENT ON COLUMN ff.edge_group.cancel_siblings_pending_members IS 'The upstreams to cancel.';
COMMENT ON COLUMN ff.edge_group.cancel_siblings_pending_losers IS 'Ended upstreams of the join, and members above them: what served only these is still to be found.';

CREATE TABLE ff.exec_body (
    created_at_ms bigint NOT NULL,
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    payload bytea NOT NULL,
    payload_encoding text,
    creator_identity text,
    idempotency_key text,
    policy jsonb,
    member_name text,
    quota_policy_id uuid,
    quota_dimension text,
    submitted_payload bytea,
    submitted_encoding text,
    CONSTRAINT exec_body_pkey PRIMARY KEY (partition_key, execution_id)
);
COMMENT ON TABLE ff.exec_body IS 'One row per execution: what was submitted. Transitions do not rewrite this row; the payload changes only when the result of an upstream is passed to the execution, or its handler restarts.';
COMMENT ON COLUMN ff.exec_body.payload IS 'The arguments, or the result of an upstream that was passed to the execution.';
COMMENT ON COLUMN ff.exec_body.policy IS 'Retries, timeouts and limits as they were at submit.';
COMMENT ON COLUMN ff.exec_body.member_name IS 'Name of the execution in its flow.';
COMMENT ON COLUMN ff.exec_body.quota_policy_id IS 'The limit of the execution; quota_key_id is computed from both.';
COMMENT ON COLUMN ff.exec_body.quota_dimension IS 'The key that the limit counts the execution under.';
COMMENT ON COLUMN ff.exec_body.submitted_payload IS 'What was submitted with the idempotency key, if payload is something else now: a repeated submit is compared with it.';
COMMENT ON COLUMN ff.exec_body.submitted_encoding IS 'The encoding of submitted_payload.';

CREATE TABLE ff.exec_core (
    partition_key smallint NOT NULL,
    resume_pending boolean DEFAULT false NOT NULL,
    lease_lost boolean DEFAULT false NOT NULL,
    attempt_index integer DEFAULT 0 NOT NULL,
    execution_id uuid NOT NULL,
    route_id bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    last_mutation_at_ms bigint NOT NULL,
    lease_epoch bigint DEFAULT 0 NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    total_attempt_count integer DEFAULT 0 NOT NULL,
    retry_count integer DEFAULT 0 NOT NULL,
    replay_count integer DEFAULT 0 NOT NULL,
    lease_reclaim_count integer DEFAULT 0 NOT NULL,
    infra_release_count integer DEFAULT 0 NOT NULL,
    signal_seq integer DEFAULT 0 NOT NULL,
    progress_pct smallint,
    flow_cancelled boolean DEFAULT false NOT NULL,
    compensates boolean DEFAULT false NOT NULL,
    lifecycle_phase ff.lifecycle_phase DEFAULT 'runnable'::text NOT NULL,
    eligibility_state ff.eligibility_state NOT NULL,
    blocking_reason ff.blocking_reason NOT NULL,
    terminal_outcome ff.terminal_outcome DEFAULT 'none'::text NOT NULL,
    attempt_state ff.attempt_state DEFAULT 'pending_first_attempt'::text NOT NULL,
    exceptional_state text GENERATED ALWAYS AS (
CASE
    WHEN ((blocking_reason)::text = 'paused_by_flow_cancel'::text) THEN 'paused_by_flow_cancel'::text
    WHEN ((lifecycle_phase)::text = 'runnable'::text) THEN NULLIF((eligibility_state)::text, 'eligible_now'::text)
    WHEN ((lifecycle_phase)::text = 'terminal'::text) THEN NULLIF((terminal_outcome)::text, 'success'::text)
    ELSE (lifecycle_phase)::text
END) STORED,
    tags jsonb DEFAULT '{}'::jsonb NOT NULL,
    flow_id uuid,
    delay_until_ms bigint,
    not_before_ms bigint,
    deadline_at_ms bigint,
    open_deadline_at_ms bigint GENERATED ALWAYS AS (
CASE
    WHEN ((lifecycle_phase)::text <> 'terminal'::text) THEN deadline_at_ms
    ELSE NULL::bigint
END) STORED,
    started_at_ms bigint,
    terminal_at_ms bigint,
    last_capability_mismatch_at_ms bigint,
    quota_key_id bigint,
    lease_id uuid,
    attempt_started_at_ms bigint,
    attempt_type ff.attempt_type,
    progress_message text,
    blocking_detail text,
    failure_reason text,
    failure_category text,
    cancellation_reason text,
    cancelled_by text,
    budget_ids uuid[],
    CONSTRAINT exec_core_pkey PRIMARY KEY (partition_key, execution_id),
    CONSTRAINT exec_core_delayed_until_an_instant CHECK ((((eligibility_state)::text = 'not_eligible_until_time'::text) = (delay_until_ms IS NOT NULL))),
    CONSTRAINT exec_core_not_before_while_blocked CHECK (((not_before_ms IS NULL) OR ((eligibility_state)::text = ANY (ARRAY['blocked_by_dependencies'::text, 'blocked_by_operator'::text])))),
    CONSTRAINT exec_core_priority CHECK (((priority >= 0) AND (priority <= 9000))),
    CONSTRAINT exec_core_runnable_is_eligible_or_blocked CHECK ((((lifecycle_phase)::text = 'runnable'::text) = ((eligibility_state)::text <> 'not_applicable'::text))),
    CONSTRAINT exec_core_terminal_has_an_outcome CHECK (((((lifecycle_phase)::text = 'terminal'::text) = ((terminal_outcome)::text <> 'none'::text)) AND (((lifecycle_phase)::text = 'terminal'::text) = (terminal_at_ms IS NOT NULL))))
) WITH (autovacuum_analyze_scale_factor=0.05, autovacuum_vacuum_cost_limit=2000, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, fillfactor=46);
CREATE INDEX exec_core_created ON ff.exec_core USING btree (route_id, created_at_ms, execution_id);
CREATE INDEX exec_core_deadline ON ff.exec_core USING btree (open_deadline_at_ms) WHERE (open_deadline_at_ms IS NOT NULL);
CREATE INDEX exec_core_delayed ON ff.exec_core USING btree (delay_until_ms) WHERE (delay_until_ms IS NOT NULL);
CREATE INDEX exec_core_exceptional ON ff.exec_core USING btree (exceptional_state, route_id, created_at_ms, execution_id) WHERE (exceptional_state IS NOT NULL);
CREATE INDEX exec_core_flow ON ff.exec_core USING btree (partition_key, flow_id) WHERE (flow_id IS NOT NULL);
CREATE INDEX exec_core_held_back ON ff.exec_core USING btree (quota_key_id, route_id, priority DESC, created_at_ms, execution_id) WHERE ((quota_key_id IS NOT NULL) AND (exceptional_state = 'blocked_by_quota'::text));
CREATE INDEX exec_core_out_of_budget ON ff.exec_core USING btree (budget_ids, priority DESC, created_at_ms, execution_id) WHERE (exceptional_state = 'blocked_by_budget'::text);
CREATE INDEX exec_core_parked ON ff.exec_core USING btree (partition_key, flow_id) WHERE (exceptional_state = 'paused_by_flow_cancel'::text);
CREATE INDEX exec_core_resumes ON ff.exec_core USING btree (route_id, created_at_ms, execution_id) WHERE resume_pending;
CREATE INDEX exec_core_retried ON ff.exec_core USING btree (route_id, created_at_ms, execution_id) WHERE (attempt_index > 0);
CREATE INDEX exec_core_uncompensated ON ff.exec_core USING btree (created_at_ms) WHERE (compensates AND (exceptional_state = ANY (ARRAY['failed'::text, 'cancelled'::text, 'expired'::text, 'skipped'::text])));
CREATE INDEX exec_core_unsuccessful ON ff.exec_core USING btree (created_at_ms, execution_id) WHERE (exceptional_state = ANY (ARRAY['failed'::text, 'cancelled'::text, 'expired'::text, 'skipped'::text]));
CREATE INDEX exec_core_waits_for_others ON ff.exec_core USING btree (uuid_hash(execution_id)) WHERE (exceptional_state = 'blocked_by_dependencies'::text);
COMMENT ON TABLE ff.exec_core IS 'One row per execution, written when it is created, when it is queued again, delayed or blocked, when its worker reports progress, and when it ends. A claim does not write it: an execution that a worker holds has a row in ff.lease beside this one, which is as the claim found it. ff.execution has both.';
COMMENT ON COLUMN ff.exec_core.resume_pending IS 'The execution was suspended and can go on; from its resume until its next claim.';
COMMENT ON COLUMN ff.exec_core.lease_lost IS 'The last lease expired or was revoked; the next claim counts as a reclaim.';
COMMENT ON COLUMN ff.exec_core.attempt_index IS 'Number of the last attempt, or of the attempt that the next claim starts.';
COMMENT ON COLUMN ff.exec_core.lease_epoch IS 'Epoch of the last lease that has ended, more if that lease was voided. The lease that is held, if there is one, has the next epoch: ending a lease changes this column, so a call under a lease that has ended is refused by the row that the call locks.';
COMMENT ON COLUMN ff.exec_core.lease_reclaim_count IS 'Claims that followed a lost lease.';
COMMENT ON COLUMN ff.exec_core.infra_release_count IS 'How often in a row the attempt was released because of trouble with the database.';
COMMENT ON COLUMN ff.exec_core.signal_seq IS 'How many signals the inbox has received; the number of the last one.';
COMMENT ON COLUMN ff.exec_core.flow_cancelled IS 'The flow of the execution was cancelled while the execution ran: instead of being queued again, the execution is ended.';
COMMENT ON COLUMN ff.exec_core.compensates IS 'The handler has armed a compensation: unless the execution succeeds, its compensations run. False again once they are started.';
COMMENT ON COLUMN ff.exec_core.exceptional_state IS 'NULL in the normal course: while the execution waits for a worker or runs, and once it has succeeded. Else why not: eligibility_state, paused_by_flow_cancel, suspended, or terminal_outcome.';
COMMENT ON COLUMN ff.exec_core.delay_until_ms IS 'Not claimable before this instant. Set exactly while the execution is delayed.';
COMMENT ON COLUMN ff.exec_core.not_before_ms IS 'The delay of an execution that waits for dependencies; it applies once they are satisfied. On an execution blocked by an operator, a value means that it waits for dependencies as well.';
COMMENT ON COLUMN ff.exec_core.open_deadline_at_ms IS 'The deadline until the execution has ended.';
COMMENT ON COLUMN ff.exec_core.last_capability_mismatch_at_ms IS 'When a claim grant was last refused because the worker lacks a capability.';
COMMENT ON COLUMN ff.exec_core.quota_key_id IS 'The key whose limit decides how many run at once and how fast they start: see ff.quota_key. Never changes.';
COMMENT ON COLUMN ff.exec_core.lease_id IS 'Of the last lease that has ended, so that a repeated call of its holder is recognised.';
COMMENT ON COLUMN ff.exec_core.attempt_started_at_ms IS 'Of the last attempt that stopped running.';
COMMENT ON COLUMN ff.exec_core.blocking_detail IS 'Why the execution is held back, in words.';
COMMENT ON COLUMN ff.exec_core.failure_reason IS 'Why the last attempt failed, or why the execution ended.';
COMMENT ON COLUMN ff.exec_core.cancelled_by IS 'The source of the call; the name of the operator is in operator_event.';
COMMENT ON COLUMN ff.exec_core.budget_ids IS 'The budgets that the execution is attached to, in ascending order: while one of them is spent, the execution is held back. NULL: none. Never changes.';

CREATE TABLE ff.exec_idempotency (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    idempotency_key text NOT NULL,
    execution_id uuid NOT NULL,
    expires_at_ms bigint NOT NULL,
    scope text DEFAULT 'window'::text NOT NULL,
    CONSTRAINT exec_idempotency_pkey PRIMARY KEY (partition_key, namespace, idempotency_key),
    CONSTRAINT exec_idempotency_scope CHECK ((scope = ANY (ARRAY['window'::text, 'started'::text, 'ended'::text])))
);
COMMENT ON TABLE ff.exec_idempotency IS 'One row per idempotency key: the execution that a repeated submit returns until the key expires.';
COMMENT ON COLUMN ff.exec_idempotency.partition_key IS 'ff.key_partition of namespace and key; the execution is in the same partition.';
COMMENT ON COLUMN ff.exec_idempotency.expires_at_ms IS 'From then on the key can be used for another execution.';
COMMENT ON COLUMN ff.exec_idempotency.scope IS 'How long the key belongs to the execution: until expires_at_ms, until it has started, or until it has ended.';

CREATE TABLE ff.exec_tag (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    tag_key text NOT NULL,
    tag_value text NOT NULL,
    created_at_ms bigint NOT NULL,
    CONSTRAINT exec_tag_pkey PRIMARY KEY (partition_key, execution_id, tag_key),
    CONSTRAINT exec_tag_tag_key CHECK (((tag_key ~ '^[a-z][a-z0-9_]*\.[a-z0-9_][a-z0-9_.]*$'::text) AND (octet_length(tag_key) <= 256)))
);
CREATE INDEX exec_tag_search ON ff.exec_tag USING btree (tag_key, tag_value, created_at_ms, execution_id);
COMMENT ON TABLE ff.exec_tag IS 'One row per tag of an execution, for searching by tag, newest first.';
COMMENT ON COLUMN ff.exec_tag.created_at_ms IS 'When the execution was created, not the tag: searches sort by it.';

CREATE TABLE ff.flow_core (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    flow_kind text NOT NULL,
    namespace text NOT NULL,
    public_flow_state ff.flow_state DEFAULT 'open'::text NOT NULL,
    graph_revision bigint DEFAULT 0 NOT NULL,
    node_count integer DEFAULT 0 NOT NULL,
    edge_count integer DEFAULT 0 NOT NULL,
    created_at_ms bigint NOT NULL,
    last_mutation_at_ms bigint NOT NULL,
    terminal_at_ms bigint,
    cancel_reason text,
    cancellation_policy ff.cancellation_policy,
    tags jsonb DEFAULT '{}'::jsonb NOT NULL,
    graph_digest bytea,
    CONSTRAINT flow_core_pkey PRIMARY KEY (partition_key, flow_id),
    CONSTRAINT flow_core_cancelled_at_an_instant CHECK (((((public_flow_state)::text = 'cancelled'::text) = (terminal_at_ms IS NOT NULL)) AND (((public_flow_state)::text = 'cancelled'::text) = (cancellation_policy IS NOT NULL)))),
    CONSTRAINT flow_core_revision CHECK ((graph_revision = (node_count + edge_count)))
);
CREATE INDEX flow_core_created ON ff.flow_core USING btree (created_at_ms, flow_id);
CREATE INDEX flow_core_empty ON ff.flow_core USING btree (last_mutation_at_ms) WHERE (node_count = 0);
CREATE INDEX flow_core_namespace ON ff.flow_core USING btree (namespace, created_at_ms, flow_id);
CREATE INDEX flow_core_partition ON ff.flow_core USING btree (partition_key, created_at_ms, flow_id);
COMMENT ON TABLE ff.flow_core IS 'One row per flow. The state of the flow is computed from its members; only a cancellation is stored.';
COMMENT ON COLUMN ff.flow_core.public_flow_state IS 'open, or cancelled; every other state is computed from the members.';
COMMENT ON COLUMN ff.flow_core.graph_revision IS 'Number of members plus edges. A caller that changes the graph names the revision that it read.';
COMMENT ON COLUMN ff.flow_core.graph_digest IS 'Digest of the kind, members and edges that the flow was started with; NULL without an idempotency key.';

CREATE TABLE ff.flow_summary (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    total_members integer NOT NULL,
    sampled_members integer NOT NULL,
    members_completed integer NOT NULL,
    members_failed integer NOT NULL,
    members_cancelled integer NOT NULL,
    members_expired integer NOT NULL,
    members_skipped integer NOT NULL,
    members_active integer NOT NULL,
    members_suspended integer NOT NULL,
    members_waiting integer NOT NULL,
    members_delayed integer NOT NULL,
    members_rate_limited integer NOT NULL,
    members_waiting_children integer NOT NULL,
    public_flow_state ff.derived_flow_state NOT NULL,
    last_summary_update_at_ms bigint NOT NULL,
    CONSTRAINT flow_summary_pkey PRIMARY KEY (partition_key, flow_id)
);
CREATE INDEX flow_summary_unsettled ON ff.flow_summary USING btree (last_summary_update_at_ms) WHERE ((public_flow_state)::text = ANY (ARRAY['open'::text, 'running'::text, 'blocked'::text]));
COMMENT ON TABLE ff.flow_summary IS 'State and counts of a flow as of the last projection, so that lists and retention need not count members.';
COMMENT ON COLUMN ff.flow_summary.sampled_members IS 'How many members were counted: all of them.';
COMMENT ON COLUMN ff.flow_summary.last_summary_update_at_ms IS 'When the members were counted.';

CREATE TABLE ff.function_annotation (
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at_ms bigint NOT NULL,
    CONSTRAINT function_annotation_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE ff.function_annotation IS 'One row per SQL function that ff migrate applied. Only functions listed here are dropped.';
COMMENT ON COLUMN ff.function_annotation.checksum IS 'SHA-256 of the file that was applied; a file that differs is applied again.';

CREATE TABLE ff.journal (
    partition_key smallint NOT NULL,
    seq integer NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    occurrence integer DEFAULT 0 NOT NULL,
    started_at_ms bigint NOT NULL,
    recorded_at_ms bigint NOT NULL,
    due_at_ms bigint,
    fingerprint integer,
    signal_seq integer,
    tries smallint DEFAULT 1 NOT NULL,
    kind ff.journal_kind NOT NULL,
    state ff.journal_state NOT NULL,
    name text NOT NULL,
    item text DEFAULT ''::text NOT NULL,
    encoding text,
    value bytea,
    CONSTRAINT journal_pkey PRIMARY KEY (partition_key, execution_id, seq),
    CONSTRAINT journal_item CHECK ((octet_length(item) <= 256)),
    CONSTRAINT journal_name CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 128)))
);
COMMENT ON TABLE ff.journal IS 'One row per durable call of a handler: a step, a sleep, a wait, a call for children. A finished entry never changes: when the handler runs again, the call returns what the entry holds.';
COMMENT ON COLUMN ff.journal.seq IS 'In the order in which entries were first written, from 1; 0 is the mark: the generation of the journal, and the calls that a replay dropped before others that it kept. Negative: a compensation that was armed before the handler restarted; the lower the number, the later it was armed.';
COMMENT ON COLUMN ff.journal.attempt_index IS 'The attempt that recorded the entry.';
COMMENT ON COLUMN ff.journal.occurrence IS 'Number of the call among those with the same name and item, from 0.';
COMMENT ON COLUMN ff.journal.due_at_ms IS 'End of a sleep, timeout of a wait, or next try of a step.';
COMMENT ON COLUMN ff.journal.fingerprint IS 'crc32 of the encoded arguments; NULL where they do not encode.';
COMMENT ON COLUMN ff.journal.signal_seq IS 'Number, in the inbox, of the signal that the entry consumed.';
COMMENT ON COLUMN ff.journal.item IS 'What the caller gave as key=.';
COMMENT ON COLUMN ff.journal.encoding IS 'Codec of the value; error where the entry has failed.';
COMMENT ON COLUMN ff.journal.value IS 'What the call returned, or the error. Of a compensation the call to make; without a value such an entry disarms those before it.';

CREATE TABLE ff.lane_registry (
    lane_id text NOT NULL,
    registered_at_ms bigint NOT NULL,
    registered_by text NOT NULL,
    lane_state text DEFAULT 'active'::text NOT NULL,
    state_changed_at_ms bigint,
    state_changed_by text,
    state_reason text,
    retention_ms bigint,
    CONSTRAINT lane_registry_pkey PRIMARY KEY (lane_id),
    CONSTRAINT lane_registry_lane_state CHECK ((lane_state = ANY (ARRAY['active'::text, 'paused'::text, 'draining'::text, 'disabled'::text]))),
    CONSTRAINT lane_registry_retention CHECK ((retention_ms >= 0))
);
COMMENT ON TABLE ff.lane_registry IS 'One row per lane, shared by all namespaces.';
COMMENT ON COLUMN ff.lane_registry.registered_by IS 'create_execution, or the worker that serves the lane.';
COMMENT ON COLUMN ff.lane_registry.retention_ms IS 'How long finished executions are kept; 0 keeps them for ever, NULL means the default.';

CREATE TABLE ff.lease (
    partition_key smallint NOT NULL,
    attempt_index integer NOT NULL,
    execution_id uuid NOT NULL,
    lease_id uuid NOT NULL,
    lease_epoch bigint NOT NULL,
    lease_expires_at_ms bigint NOT NULL,
    last_mutation_at_ms bigint NOT NULL,
    attempt_started_at_ms bigint NOT NULL,
    attempt_timeout_at_ms bigint,
    quota_key_id bigint,
    lease_reclaim_count integer NOT NULL,
    attempt_recorded boolean NOT NULL,
    attempt_type ff.attempt_type NOT NULL,
    worker_id text NOT NULL,
    worker_instance_id text NOT NULL,
    CONSTRAINT lease_pkey PRIMARY KEY (partition_key, execution_id)
) WITH (autovacuum_vacuum_cost_limit=2000, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000, fillfactor=90);
CREATE INDEX lease_quota ON ff.lease USING btree (quota_key_id) WHERE (quota_key_id IS NOT NULL);
COMMENT ON TABLE ff.lease IS 'One row per execution that a worker holds, deleted when the lease ends. There are as many as handlers run and workers have claimed ahead, so sweeps read all of them. Renewals change no indexed column.';
COMMENT ON COLUMN ff.lease.attempt_index IS 'Number of the attempt that runs.';
COMMENT ON COLUMN ff.lease.lease_id IS 'Random, made by the caller of the claim.';
COMMENT ON COLUMN ff.lease.lease_epoch IS 'One more than lease_epoch of the execution in exec_core.';
COMMENT ON COLUMN ff.lease.attempt_started_at_ms IS 'When the attempt began; an attempt that was interrupted keeps the instant of its first claim.';
COMMENT ON COLUMN ff.lease.attempt_timeout_at_ms IS 'When the running attempt times out.';
COMMENT ON COLUMN ff.lease.quota_key_id IS 'Of the execution: the lease holds a slot of that key.';
COMMENT ON COLUMN ff.lease.lease_reclaim_count IS 'Of the execution, with this claim if it followed a lost lease.';
COMMENT ON COLUMN ff.lease.attempt_recorded IS 'The ledger has a row of this attempt already: the attempt was interrupted, or is made again.';
COMMENT ON COLUMN ff.lease.worker_id IS 'The pool of the worker that holds the lease.';
COMMENT ON COLUMN ff.lease.worker_instance_id IS 'The process that holds the lease.';

CREATE TABLE ff.lease_event (
    event_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    execution_id uuid NOT NULL,
    lease_id uuid NOT NULL,
    route_id bigint NOT NULL,
    lease_epoch bigint NOT NULL,
    occurred_at_ms bigint NOT NULL,
    attempt_index integer NOT NULL,
    partition_key smallint NOT NULL,
    event_type ff.lease_event_type NOT NULL,
    reason ff.lease_event_reason,
    worker_instance_id text NOT NULL,
    tags jsonb,
    CONSTRAINT lease_event_pkey PRIMARY KEY (event_id, partition_key)
);
CREATE INDEX lease_event_execution ON ff.lease_event USING btree (execution_id, event_id);
ALTER TABLE ff.lease_event ALTER COLUMN execution_id SET (n_distinct=-0.3);
COMMENT ON TABLE ff.lease_event IS 'Outbox of lease changes: acquired, renewed if the full history is kept, reclaimed, expired, revoked.';
COMMENT ON COLUMN ff.lease_event.reason IS 'Why the lease ended before its expiry.';

CREATE TABLE ff.migration_annotation (
    version integer NOT NULL,
    name text NOT NULL,
    applied_at_ms bigint NOT NULL,
    backward_compatible boolean NOT NULL,
    checksum text NOT NULL,
    CONSTRAINT migration_annotation_pkey PRIMARY KEY (version)
);
COMMENT ON TABLE ff.migration_annotation IS 'One row per applied migration.';
COMMENT ON COLUMN ff.migration_annotation.backward_compatible IS 'May code that does not know the migration work on the schema after it?';
COMMENT ON COLUMN ff.migration_annotation.checksum IS 'SHA-256 of the file that was applied.';

CREATE TABLE ff.operator_event (
    event_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    execution_id uuid,
    flow_id uuid,
    route_id bigint,
    lease_epoch bigint,
    occurred_at_ms bigint NOT NULL,
    partition_key smallint NOT NULL,
    event_type text NOT NULL,
    actor text NOT NULL,
    reason text,
    details jsonb NOT NULL,
    tags jsonb,
    CONSTRAINT operator_event_pkey PRIMARY KEY (event_id, partition_key),
    CONSTRAINT operator_event_event_type CHECK ((event_type = ANY (ARRAY['cancelled'::text, 'completed'::text, 'failed'::text, 'delayed'::text, 'lease_revoked'::text, 'priority_changed'::text, 'replayed'::text, 'blocked'::text, 'unblocked'::text, 'flow_cancel_requested'::text, 'flow_replayed'::text, 'lane_state_changed'::text, 'lane_retention_changed'::text, 'retention_trimmed'::text, 'key_rotated'::text, 'resumed'::text, 'woken'::text, 'waitpoint_closed'::text, 'waitpoint_answered'::text, 'schedule_created'::text, 'schedule_updated'::text, 'schedule_paused'::text, 'schedule_resumed'::text, 'schedule_triggered'::text, 'schedule_backfilled'::text, 'schedule_deleted'::text, 'budget_created'::text, 'budget_limits_changed'::text, 'budget_reset'::text, 'budget_released'::text, 'usage_reported'::text, 'execution_tagged'::text, 'flow_tagged'::text, 'worker_marked_dead'::text, 'bulk_started'::text, 'bulk_stopped'::text, 'limit_created'::text, 'limit_changed'::text, 'limit_deleted'::text, 'token_created'::text, 'token_revoked'::text])))
);
CREATE INDEX operator_event_age ON ff.operator_event USING btree (occurred_at_ms) WHERE (execution_id IS NULL);
CREATE INDEX operator_event_execution ON ff.operator_event USING btree (execution_id, event_id) WHERE (execution_id IS NOT NULL);
COMMENT ON TABLE ff.operator_event IS 'Outbox and audit trail of operator actions. An action on a lane, a flow or a key has no execution.';
COMMENT ON COLUMN ff.operator_event.lease_epoch IS 'Of the execution after the action: its place among the lease events.';
COMMENT ON COLUMN ff.operator_event.partition_key IS 'Of the execution or flow, else 0.';
COMMENT ON COLUMN ff.operator_event.details IS 'The values before and after.';

CREATE TABLE ff.partition_config (
    singleton boolean DEFAULT true NOT NULL,
    num_flow_partitions integer NOT NULL,
    num_budget_partitions integer NOT NULL,
    num_quota_partitions integer NOT NULL,
    version text NOT NULL,
    CONSTRAINT partition_config_pkey PRIMARY KEY (singleton),
    CONSTRAINT partition_config_counts CHECK ((((num_flow_partitions >= 1) AND (num_flow_partitions <= 32767)) AND ((num_budget_partitions >= 1) AND (num_budget_partitions <= 32767)) AND ((num_quota_partitions >= 1) AND (num_quota_partitions <= 32767)))),
    CONSTRAINT partition_config_singleton CHECK (singleton)
);
COMMENT ON TABLE ff.partition_config IS 'One row: the partition counts that every process must agree on.';
COMMENT ON COLUMN ff.partition_config.singleton IS 'Always true: the key that allows only one row.';
COMMENT ON COLUMN ff.partition_config.version IS 'Version of the layout of this row.';

CREATE TABLE ff.pending_cancel_groups (
    partition_key smallint NOT NULL,
    flow_id uuid NOT NULL,
    group_id uuid NOT NULL,
    enqueued_at_ms bigint NOT NULL,
    CONSTRAINT pending_cancel_groups_pkey PRIMARY KEY (partition_key, flow_id, group_id)
);
CREATE INDEX pending_cancel_groups_age ON ff.pending_cancel_groups USING btree (enqueued_at_ms);
COMMENT ON TABLE ff.pending_cancel_groups IS 'Queue of joins whose remaining upstreams are to be cancelled.';

CREATE TABLE ff.quota_admitted (
    partition_key smallint NOT NULL,
    quota_key_id bigint NOT NULL,
    quota_policy_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    execution_partition smallint NOT NULL,
    admitted_at_ms bigint NOT NULL,
    start_no bigint,
    expires_at_ms bigint NOT NULL,
    released_at_ms bigint,
    lease_epoch bigint,
    CONSTRAINT quota_admitted_pkey PRIMARY KEY (partition_key, quota_key_id, execution_id)
);
CREATE INDEX quota_admitted_execution ON ff.quota_admitted USING btree (execution_id);
CREATE INDEX quota_admitted_expiry ON ff.quota_admitted USING btree (expires_at_ms);
CREATE INDEX quota_admitted_key ON ff.quota_admitted USING btree (quota_key_id);
COMMENT ON TABLE ff.quota_admitted IS 'One row per execution and key that check_admission has admitted, until it has expired.';
COMMENT ON COLUMN ff.quota_admitted.start_no IS 'Its row in quota_window; NULL if the limit has no rate.';
COMMENT ON COLUMN ff.quota_admitted.expires_at_ms IS 'Until then the execution is admitted without being counted again.';
COMMENT ON COLUMN ff.quota_admitted.released_at_ms IS 'When its slot was given back. The row is kept for its window: an execution that is admitted again counts once.';
COMMENT ON COLUMN ff.quota_admitted.lease_epoch IS 'That of the execution when it was admitted, if it existed: another epoch says that it has run, and gave up its slot.';

CREATE TABLE ff.quota_key (
    partition_key smallint NOT NULL,
    quota_key_id bigint NOT NULL,
    quota_policy_id uuid NOT NULL,
    dimension text NOT NULL,
    next_at_ms bigint,
    CONSTRAINT quota_key_pkey PRIMARY KEY (partition_key, quota_key_id)
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, fillfactor=50);
CREATE INDEX quota_key_next ON ff.quota_key USING btree (next_at_ms) WHERE (next_at_ms IS NOT NULL);
CREATE INDEX quota_key_policy ON ff.quota_key USING btree (quota_policy_id, quota_key_id);
COMMENT ON TABLE ff.quota_key IS 'One row per key of a limit that a claim has seen. A claim that gives out a slot or a start of the key locks it first. The slots in use are the leases of the key: there is no counter.';
COMMENT ON COLUMN ff.quota_key.partition_key IS 'quota_key_id modulo num_flow_partitions.';
COMMENT ON COLUMN ff.quota_key.quota_key_id IS 'ff.quota_key_id of quota_policy_id and dimension.';
COMMENT ON COLUMN ff.quota_key.dimension IS 'The key in words.';
COMMENT ON COLUMN ff.quota_key.next_at_ms IS 'When executions that are held back can be let go; NULL if no instant is known.';

CREATE TABLE ff.quota_policy (
    partition_key smallint NOT NULL,
    quota_policy_id uuid NOT NULL,
    namespace text NOT NULL,
    name text,
    window_ms bigint NOT NULL,
    max_requests_per_window integer NOT NULL,
    active_concurrency_cap integer NOT NULL,
    jitter_ms bigint DEFAULT 0 NOT NULL,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    CONSTRAINT quota_policy_pkey PRIMARY KEY (partition_key, quota_policy_id),
    CONSTRAINT quota_policy_limits CHECK (((window_ms >= 0) AND (max_requests_per_window >= 0) AND (active_concurrency_cap >= 0) AND (jitter_ms >= 0) AND ((window_ms > 0) OR (max_requests_per_window = 0))))
);
CREATE INDEX quota_policy_id ON ff.quota_policy USING btree (quota_policy_id);
CREATE INDEX quota_policy_name ON ff.quota_policy USING btree (namespace, name);
CREATE INDEX quota_policy_window ON ff.quota_policy USING btree (window_ms);
COMMENT ON TABLE ff.quota_policy IS 'One row per limit. Its numbers hold for each key apart, and 0 means that there is no such limit.';
COMMENT ON COLUMN ff.quota_policy.partition_key IS 'Hash of quota_policy_id modulo num_quota_partitions.';
COMMENT ON COLUMN ff.quota_policy.quota_policy_id IS 'Computed from namespace and name; of a limit without a name, as its creator gave it.';
COMMENT ON COLUMN ff.quota_policy.max_requests_per_window IS 'How many executions of a key may start in any window_ms.';
COMMENT ON COLUMN ff.quota_policy.active_concurrency_cap IS 'How many executions of a key may run at once.';
COMMENT ON COLUMN ff.quota_policy.jitter_ms IS 'Up to so much is added to the time after which check_admission says to ask again.';

CREATE TABLE ff.quota_wakeup (
    partition_key smallint NOT NULL,
    wakeup_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    quota_key_id bigint NOT NULL,
    CONSTRAINT quota_wakeup_pkey PRIMARY KEY (partition_key, wakeup_id)
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
COMMENT ON TABLE ff.quota_wakeup IS 'Keys of executions that left the queue or lost their lease without a worker that lets others of the key go. A sweep does, and deletes the rows.';
COMMENT ON COLUMN ff.quota_wakeup.partition_key IS 'Of the execution.';

CREATE TABLE ff.quota_window (
    partition_key smallint NOT NULL,
    quota_key_id bigint NOT NULL,
    admitted_at_ms bigint NOT NULL,
    start_no bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    CONSTRAINT quota_window_pkey PRIMARY KEY (partition_key, quota_key_id, admitted_at_ms, start_no)
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
CREATE INDEX quota_window_age ON ff.quota_window USING btree (admitted_at_ms);
COMMENT ON TABLE ff.quota_window IS 'One row per start that a limit with a rate counts; deleted some time after its window has passed.';

CREATE TABLE ff.ready (
    route_id bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    priority integer NOT NULL,
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    deadline_at_ms bigint,
    quota_key_id bigint,
    queued_by xid8,
    budget_ids uuid[]
) WITH (autovacuum_analyze_scale_factor=0.2, autovacuum_vacuum_cost_limit=2000, autovacuum_vacuum_insert_scale_factor=0.2, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
CREATE INDEX ready_budgets ON ff.ready USING btree (execution_id) WHERE (budget_ids IS NOT NULL);
CREATE UNIQUE INDEX ready_claim ON ff.ready USING btree (route_id, priority DESC, created_at_ms, execution_id, partition_key);
CREATE INDEX ready_quota ON ff.ready USING btree (quota_key_id, route_id, priority DESC, created_at_ms, execution_id) WHERE (quota_key_id IS NOT NULL);
COMMENT ON TABLE ff.ready IS 'The queue: one row per execution that a worker can claim now. A row is inserted when an execution becomes claimable and deleted when it is claimed or not claimable any more, never updated: what a statement reads of the execution together with this row is up to date as long as the row is there.';
COMMENT ON COLUMN ff.ready.created_at_ms IS 'Of the execution.';
COMMENT ON COLUMN ff.ready.quota_key_id IS 'Of the execution.';
COMMENT ON COLUMN ff.ready.queued_by IS 'The transaction that inserted the row, of one with a limit; xmin may be a savepoint within it.';
COMMENT ON COLUMN ff.ready.budget_ids IS 'Of the execution.';

CREATE TABLE ff.role_annotation (
    role_name text NOT NULL,
    access text NOT NULL,
    CONSTRAINT role_annotation_pkey PRIMARY KEY (role_name),
    CONSTRAINT role_annotation_access CHECK ((access = ANY (ARRAY['runtime'::text, 'read'::text])))
);
COMMENT ON TABLE ff.role_annotation IS 'One row per role that ff migrate grants rights to, again in every run.';

CREATE TABLE ff.route (
    route_id bigint NOT NULL,
    namespace text NOT NULL,
    lane_id text NOT NULL,
    execution_kind text NOT NULL,
    required_capabilities text[] NOT NULL,
    CONSTRAINT route_pkey PRIMARY KEY (route_id),
    CONSTRAINT route_execution_kind CHECK (((octet_length(execution_kind) >= 1) AND (octet_length(execution_kind) <= 256))),
    CONSTRAINT route_lane_id CHECK ((((octet_length(lane_id) >= 1) AND (octet_length(lane_id) <= 64)) AND (lane_id ~ '^[ -~]+$'::text))),
    CONSTRAINT route_namespace CHECK (((octet_length(namespace) >= 1) AND (octet_length(namespace) <= 256)))
);
CREATE INDEX route_lane ON ff.route USING btree (lane_id, namespace, execution_kind);
COMMENT ON TABLE ff.route IS 'What a worker must offer to claim an execution: executions of one route are claimable by the same workers. Few rows, read by every claim.';
COMMENT ON COLUMN ff.route.route_id IS 'Hash of the other columns, computed by ff.route_id; the same in every process.';

CREATE TABLE ff.saved_query (
    query_id uuid NOT NULL,
    namespace text NOT NULL,
    owner text NOT NULL,
    shared boolean NOT NULL,
    name text NOT NULL,
    query text NOT NULL,
    created_at_ms bigint NOT NULL,
    CONSTRAINT saved_query_pkey PRIMARY KEY (query_id)
);
CREATE UNIQUE INDEX saved_query_name ON ff.saved_query USING btree (namespace, owner, name);
COMMENT ON TABLE ff.saved_query IS 'Searches that people have saved by a name.';
COMMENT ON COLUMN ff.saved_query.owner IS 'Who saved it, as the server names callers.';
COMMENT ON COLUMN ff.saved_query.shared IS 'True: everybody who sees the namespace may use it. False: its owner alone.';
COMMENT ON COLUMN ff.saved_query.query IS 'The parameters of the URL of the search.';

CREATE TABLE ff.schedule (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    spec_kind text NOT NULL,
    cron text,
    tz text NOT NULL,
    every_ms bigint,
    anchor_ms bigint,
    at_ms bigint,
    execution_kind text NOT NULL,
    lane_id text NOT NULL,
    payload bytea NOT NULL,
    payload_encoding text,
    priority integer NOT NULL,
    policy jsonb,
    tags jsonb NOT NULL,
    required_capabilities text[] NOT NULL,
    limit_name text,
    limit_key text,
    overlap text NOT NULL,
    catch_up integer NOT NULL,
    catch_up_window_ms bigint NOT NULL,
    jitter_ms bigint NOT NULL,
    starts_at_ms bigint,
    until_ms bigint,
    runs integer,
    runs_left integer,
    next_fire_at_ms bigint,
    last_fire_at_ms bigint,
    fired bigint DEFAULT 0 NOT NULL,
    skipped bigint DEFAULT 0 NOT NULL,
    missed bigint DEFAULT 0 NOT NULL,
    state text DEFAULT 'active'::text NOT NULL,
    state_by text,
    state_reason text,
    state_changed_at_ms bigint,
    source text NOT NULL,
    created_at_ms bigint NOT NULL,
    created_by text NOT NULL,
    revision bigint DEFAULT 1 NOT NULL,
    edited_by text,
    latest_partitions smallint[] DEFAULT '{}'::smallint[] NOT NULL,
    latest_ids uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    queued boolean DEFAULT false NOT NULL,
    CONSTRAINT schedule_pkey PRIMARY KEY (partition_key, namespace, name),
    CONSTRAINT schedule_active_has_a_next CHECK (((state <> 'active'::text) OR (next_fire_at_ms IS NOT NULL))),
    CONSTRAINT schedule_name CHECK (((octet_length(name) >= 1) AND (octet_length(name) <= 256))),
    CONSTRAINT schedule_overlap CHECK ((overlap = ANY (ARRAY['allow'::text, 'skip'::text, 'queue_one'::text, 'queue_all'::text, 'cancel_running'::text]))),
    CONSTRAINT schedule_source CHECK ((source = ANY (ARRAY['code'::text, 'api'::text]))),
    CONSTRAINT schedule_spec CHECK ((((spec_kind = 'cron'::text) = (cron IS NOT NULL)) AND ((spec_kind = 'interval'::text) = ((every_ms IS NOT NULL) AND (anchor_ms IS NOT NULL))) AND ((spec_kind = 'once'::text) = (at_ms IS NOT NULL)))),
    CONSTRAINT schedule_spec_kind CHECK ((spec_kind = ANY (ARRAY['cron'::text, 'interval'::text, 'once'::text]))),
    CONSTRAINT schedule_state CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text, 'finished'::text, 'broken'::text])))
) WITH (fillfactor=70);
CREATE INDEX schedule_busy ON ff.schedule USING btree (name) WHERE (((fired + skipped) + missed) > 1000);
CREATE INDEX schedule_due ON ff.schedule USING btree (next_fire_at_ms) WHERE (state = 'active'::text);
CREATE INDEX schedule_list ON ff.schedule USING btree (namespace, name);
CREATE INDEX schedule_queued ON ff.schedule USING btree (name) WHERE queued;
COMMENT ON TABLE ff.schedule IS 'One row per schedule: when it fires, what it executes, and what it has done so far.';
COMMENT ON COLUMN ff.schedule.partition_key IS 'ff.key_partition of namespace and name.';
COMMENT ON COLUMN ff.schedule.tz IS 'The time zone of the cron expression, by its IANA name.';
COMMENT ON COLUMN ff.schedule.anchor_ms IS 'From which instant the interval counts.';
COMMENT ON COLUMN ff.schedule.at_ms IS 'The only instant of a schedule that fires once.';
COMMENT ON COLUMN ff.schedule.limit_name IS 'The limit of its executions, in the same namespace.';
COMMENT ON COLUMN ff.schedule.limit_key IS 'The key that the limit counts them under; NULL: one for all.';
COMMENT ON COLUMN ff.schedule.overlap IS 'What a firing does while an earlier execution has not ended.';
COMMENT ON COLUMN ff.schedule.catch_up IS 'How many instants that nobody fired in time are fired later.';
COMMENT ON COLUMN ff.schedule.catch_up_window_ms IS 'Older instants are not fired later.';
COMMENT ON COLUMN ff.schedule.jitter_ms IS 'Each execution is delayed by less than this.';
COMMENT ON COLUMN ff.schedule.until_ms IS 'The last instant that may fire.';
COMMENT ON COLUMN ff.schedule.runs IS 'After how many firings the schedule is finished; NULL: never.';
COMMENT ON COLUMN ff.schedule.next_fire_at_ms IS 'The next instant, or the first that is not fired yet. A paused schedule keeps its own.';
COMMENT ON COLUMN ff.schedule.missed IS 'Instants that nobody fired in time and that were not caught up.';
COMMENT ON COLUMN ff.schedule.state_reason IS 'Why it is paused, or the error of a broken one.';
COMMENT ON COLUMN ff.schedule.source IS 'Defined by an application, or through the client or ff.';
COMMENT ON COLUMN ff.schedule.revision IS 'One more with every change and firing: a firing compares it, so of two processes one fires.';
COMMENT ON COLUMN ff.schedule.edited_by IS 'Who gave a schedule from code another definition by hand; NULL: it is as code defines it.';
COMMENT ON COLUMN ff.schedule.latest_ids IS 'The last ten executions, oldest first, and older ones that wait for their turn. Their partitions are in latest_partitions.';
COMMENT ON COLUMN ff.schedule.queued IS 'One of them may wait until an earlier one has ended.';

CREATE TABLE ff.schedule_fire (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    fire_at_ms bigint NOT NULL,
    trigger_id uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    outcome text NOT NULL,
    execution_id uuid,
    execution_partition smallint,
    recorded_at_ms bigint NOT NULL,
    reason text,
    CONSTRAINT schedule_fire_pkey PRIMARY KEY (partition_key, namespace, name, fire_at_ms, trigger_id),
    CONSTRAINT schedule_fire_execution CHECK (((execution_id IS NULL) = (execution_partition IS NULL))),
    CONSTRAINT schedule_fire_outcome CHECK ((outcome = ANY (ARRAY['fired'::text, 'triggered'::text, 'backfilled'::text, 'skipped'::text, 'missed'::text, 'refused'::text])))
);
CREATE INDEX schedule_fire_age ON ff.schedule_fire USING btree (recorded_at_ms);
COMMENT ON TABLE ff.schedule_fire IS 'One row per instant of a schedule: what became of it. Kept for 30 days, and of each schedule the newest 1,000.';
COMMENT ON COLUMN ff.schedule_fire.fire_at_ms IS 'The instant; of a trigger, when it was called.';
COMMENT ON COLUMN ff.schedule_fire.trigger_id IS 'Of a trigger its own id, else zero.';
COMMENT ON COLUMN ff.schedule_fire.execution_id IS 'The execution that was created.';
COMMENT ON COLUMN ff.schedule_fire.reason IS 'Why the instant was not fired.';

CREATE TABLE ff.signal_dedup (
    partition_key smallint NOT NULL,
    waitpoint_id uuid NOT NULL,
    idempotency_key text NOT NULL,
    signal_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    expires_at_ms bigint NOT NULL,
    CONSTRAINT signal_dedup_pkey PRIMARY KEY (partition_key, waitpoint_id, idempotency_key)
);
CREATE INDEX signal_dedup_execution ON ff.signal_dedup USING btree (execution_id);
COMMENT ON TABLE ff.signal_dedup IS 'The signals to a waitpoint that had an idempotency key: a repeated one is a duplicate until it expires.';

CREATE TABLE ff.signal_event (
    event_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    execution_id uuid NOT NULL,
    signal_id uuid NOT NULL,
    waitpoint_id uuid,
    route_id bigint NOT NULL,
    lease_epoch bigint NOT NULL,
    occurred_at_ms bigint NOT NULL,
    partition_key smallint NOT NULL,
    signal_name text NOT NULL,
    effect text NOT NULL,
    source_type text NOT NULL,
    source_identity text NOT NULL,
    tags jsonb,
    CONSTRAINT signal_event_pkey PRIMARY KEY (event_id, partition_key),
    CONSTRAINT signal_event_effect CHECK ((effect = ANY (ARRAY['appended_to_waitpoint'::text, 'resume_condition_satisfied'::text, 'buffered_for_pending_waitpoint'::text, 'buffered_in_inbox'::text])))
);
CREATE INDEX signal_event_execution ON ff.signal_event USING btree (execution_id, event_id);
COMMENT ON TABLE ff.signal_event IS 'Outbox of signals: one row for each signal that was accepted. A duplicate writes none.';
COMMENT ON COLUMN ff.signal_event.waitpoint_id IS 'NULL for a signal that was sent by name, into the inbox.';
COMMENT ON COLUMN ff.signal_event.lease_epoch IS 'Of the execution when the signal arrived: for the order of events.';
COMMENT ON COLUMN ff.signal_event.effect IS 'What the signal did when it arrived.';

CREATE TABLE ff.signal_inbox (
    partition_key smallint NOT NULL,
    signal_seq integer NOT NULL,
    execution_id uuid NOT NULL,
    signal_id uuid NOT NULL,
    accepted_at_ms bigint NOT NULL,
    consumed boolean DEFAULT false NOT NULL,
    signal_name text NOT NULL,
    source_type text NOT NULL,
    source_identity text NOT NULL,
    correlation_id text DEFAULT ''::text NOT NULL,
    idempotency_key text,
    encoding text,
    payload bytea,
    CONSTRAINT signal_inbox_pkey PRIMARY KEY (partition_key, execution_id, signal_seq),
    CONSTRAINT signal_inbox_signal_name CHECK (((octet_length(signal_name) >= 1) AND (octet_length(signal_name) <= 128)))
);
CREATE UNIQUE INDEX signal_inbox_idempotency ON ff.signal_inbox USING btree (partition_key, execution_id, idempotency_key) WHERE (idempotency_key IS NOT NULL);
COMMENT ON TABLE ff.signal_inbox IS 'Signals that were sent to an execution by name, in the order of their arrival. A handler consumes those of one name first in, first out; an entry of the journal names the signal that it consumed.';
COMMENT ON COLUMN ff.signal_inbox.consumed IS 'Consumed by an entry of an earlier generation, which the journal does not have any more.';

CREATE TABLE ff.stream_frame (
    partition_key smallint NOT NULL,
    attempt_index integer NOT NULL,
    execution_id uuid NOT NULL,
    ts_ms bigint NOT NULL,
    ttl_ms bigint,
    seq integer NOT NULL,
    summary_version integer,
    mode text NOT NULL,
    frame_type text NOT NULL,
    correlation_id text,
    payload bytea NOT NULL,
    CONSTRAINT stream_frame_pkey PRIMARY KEY (partition_key, execution_id, attempt_index, ts_ms, seq),
    CONSTRAINT stream_frame_frame_type CHECK (((octet_length(frame_type) >= 1) AND (octet_length(frame_type) <= 128))),
    CONSTRAINT stream_frame_mode CHECK ((mode = ANY (ARRAY['durable'::text, 'summary'::text, 'best_effort'::text]))),
    CONSTRAINT stream_frame_payload CHECK ((octet_length(payload) <= 65536))
) WITH (autovacuum_vacuum_insert_scale_factor=0.2, autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_threshold=5000);
COMMENT ON TABLE ff.stream_frame IS 'One row per frame of a stream. A stream belongs to one attempt of one execution; its frames are read in the order of ts_ms and seq, which is the order in which they were committed.';
COMMENT ON COLUMN ff.stream_frame.ts_ms IS 'When the frame was appended; never below that of the frame before it, also if the clock was set back.';
COMMENT ON COLUMN ff.stream_frame.ttl_ms IS 'For how long a best_effort frame is of use.';
COMMENT ON COLUMN ff.stream_frame.seq IS 'Number of the frame among those of its millisecond, from 0.';
COMMENT ON COLUMN ff.stream_frame.summary_version IS 'Version of the summary after a frame of mode summary.';
COMMENT ON COLUMN ff.stream_frame.payload IS 'The bytes; of a summary frame the JSON merge patch.';

CREATE TABLE ff.stream_meta (
    partition_key smallint NOT NULL,
    attempt_index integer NOT NULL,
    execution_id uuid NOT NULL,
    append_id uuid,
    created_at_ms bigint NOT NULL,
    last_ts_ms bigint DEFAULT 0 NOT NULL,
    frame_count bigint DEFAULT 0 NOT NULL,
    total_bytes bigint DEFAULT 0 NOT NULL,
    last_seq integer DEFAULT '-1'::integer NOT NULL,
    retention_maxlen integer NOT NULL,
    durable_kept integer DEFAULT 0 NOT NULL,
    summary_kept integer DEFAULT 0 NOT NULL,
    best_effort_kept integer DEFAULT 0 NOT NULL,
    has_durable_frame boolean DEFAULT false NOT NULL,
    maxlen_applied_last integer,
    ema_rate_hz double precision,
    last_append_ts_ms bigint,
    best_effort_ttl_ms bigint,
    expires_at_ms bigint,
    CONSTRAINT stream_meta_pkey PRIMARY KEY (partition_key, execution_id, attempt_index)
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, fillfactor=50);
CREATE INDEX stream_meta_expiry ON ff.stream_meta USING btree (expires_at_ms) WHERE (expires_at_ms IS NOT NULL);
COMMENT ON TABLE ff.stream_meta IS 'One row per stream, made with its first frame. An append locks it until the commit, so the frames of a stream become visible in the order of their ids. Whether the stream is closed follows from the attempt: see ff.lease and ff.attempt.';
COMMENT ON COLUMN ff.stream_meta.append_id IS 'Made by the caller of the last append, so that a call that is repeated after a lost answer is recognised.';
COMMENT ON COLUMN ff.stream_meta.last_ts_ms IS 'ts_ms of the last frame; last_seq is its seq.';
COMMENT ON COLUMN ff.stream_meta.frame_count IS 'Frames that were ever appended, also those that are deleted.';
COMMENT ON COLUMN ff.stream_meta.retention_maxlen IS 'How many durable frames are kept: stream_policy.retention_maxlen of the policy, or 10000.';
COMMENT ON COLUMN ff.stream_meta.durable_kept IS 'Durable frames that are stored now; summary_kept and best_effort_kept are those of the other modes.';
COMMENT ON COLUMN ff.stream_meta.has_durable_frame IS 'A durable or a summary frame was ever appended.';
COMMENT ON COLUMN ff.stream_meta.maxlen_applied_last IS 'How many best-effort frames were kept at the last append of one: as many as the rate asks for.';
COMMENT ON COLUMN ff.stream_meta.ema_rate_hz IS 'Best-effort frames per second, as a moving average; last_append_ts_ms is when the last was appended.';
COMMENT ON COLUMN ff.stream_meta.best_effort_ttl_ms IS 'ttl_ms of the last best-effort frame.';
COMMENT ON COLUMN ff.stream_meta.expires_at_ms IS 'When the oldest best-effort frame may be deleted for its age; NULL if there is none, or a durable frame.';

CREATE TABLE ff.stream_summary (
    partition_key smallint NOT NULL,
    attempt_index integer NOT NULL,
    execution_id uuid NOT NULL,
    first_applied_ms bigint NOT NULL,
    last_updated_ms bigint NOT NULL,
    version integer NOT NULL,
    patch_kind text DEFAULT 'json-merge-patch'::text NOT NULL,
    document_json jsonb NOT NULL,
    CONSTRAINT stream_summary_pkey PRIMARY KEY (partition_key, execution_id, attempt_index),
    CONSTRAINT stream_summary_patch_kind CHECK ((patch_kind = 'json-merge-patch'::text))
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, fillfactor=50);
COMMENT ON TABLE ff.stream_summary IS 'One row per stream that has had a summary frame: the document that all its patches have made.';
COMMENT ON COLUMN ff.stream_summary.version IS 'How many patches were merged.';

CREATE TABLE ff.suspend_dedup (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    idempotency_key text NOT NULL,
    outcome jsonb NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    CONSTRAINT suspend_dedup_pkey PRIMARY KEY (partition_key, execution_id, idempotency_key)
);
COMMENT ON TABLE ff.suspend_dedup IS 'The answer of each suspend that had an idempotency key, without tokens; a repeated call gets it again.';

CREATE TABLE ff.suspension_current (
    partition_key smallint NOT NULL,
    attempt_index integer NOT NULL,
    execution_id uuid NOT NULL,
    suspension_id uuid NOT NULL,
    suspended_at_ms bigint NOT NULL,
    timeout_at_ms bigint,
    satisfied_at_ms bigint,
    closed_at_ms bigint,
    closer_signal_id uuid,
    timeout_behavior text DEFAULT 'fail'::text NOT NULL,
    reason_code text NOT NULL,
    requested_by text DEFAULT 'worker'::text NOT NULL,
    close_reason text,
    continuation_metadata_pointer text,
    keeps_waitpoints boolean DEFAULT false NOT NULL,
    awaits_signals text[] DEFAULT '{}'::text[] NOT NULL,
    awaits_joins uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    condition jsonb NOT NULL,
    resume_policy jsonb DEFAULT '{}'::jsonb NOT NULL,
    all_satisfier_signals jsonb,
    CONSTRAINT suspension_current_pkey PRIMARY KEY (partition_key, execution_id),
    CONSTRAINT suspension_current_closed_has_no_timeout CHECK (((closed_at_ms IS NULL) OR (timeout_at_ms IS NULL))),
    CONSTRAINT suspension_current_closed_with_a_reason CHECK (((closed_at_ms IS NULL) = (close_reason IS NULL))),
    CONSTRAINT suspension_current_reason_code CHECK ((reason_code = ANY (ARRAY['waiting_for_signal'::text, 'waiting_for_approval'::text, 'waiting_for_callback'::text, 'waiting_for_tool_result'::text, 'waiting_for_operator_review'::text, 'paused_by_policy'::text, 'paused_by_budget'::text, 'step_boundary'::text, 'manual_pause'::text]))),
    CONSTRAINT suspension_current_requested_by CHECK ((requested_by = ANY (ARRAY['worker'::text, 'operator'::text, 'policy'::text, 'system_timeout_policy'::text]))),
    CONSTRAINT suspension_current_timeout_behavior CHECK ((timeout_behavior = ANY (ARRAY['fail'::text, 'cancel'::text, 'expire'::text, 'auto_resume_with_timeout_signal'::text, 'escalate'::text])))
);
CREATE INDEX suspension_current_open ON ff.suspension_current USING btree (partition_key, suspended_at_ms, execution_id) WHERE (closed_at_ms IS NULL);
CREATE INDEX suspension_current_timeout ON ff.suspension_current USING btree (timeout_at_ms) WHERE (timeout_at_ms IS NOT NULL);
COMMENT ON TABLE ff.suspension_current IS 'The last suspension of each execution that was suspended; open until closed_at_ms is set.';
COMMENT ON COLUMN ff.suspension_current.attempt_index IS 'The attempt that is suspended.';
COMMENT ON COLUMN ff.suspension_current.timeout_at_ms IS 'When the timeout behaviour applies; NULL once closed.';
COMMENT ON COLUMN ff.suspension_current.keeps_waitpoints IS 'A handler waits for several things: when it is resumed its waitpoints are pending again, instead of closed.';
COMMENT ON COLUMN ff.suspension_current.awaits_signals IS 'Names of signals in the inbox, any of which resumes the execution.';
COMMENT ON COLUMN ff.suspension_current.awaits_joins IS 'Joins of children (ff.edge_group.group_id), any of which resumes the execution when it is decided.';
COMMENT ON COLUMN ff.suspension_current.condition IS 'Which signals on waitpoints resume the execution.';
COMMENT ON COLUMN ff.suspension_current.all_satisfier_signals IS 'The signals that satisfied the condition.';

CREATE UNLOGGED TABLE ff.sweeper (
    standby boolean NOT NULL,
    worker_instance_id text NOT NULL,
    held_until_ms bigint NOT NULL,
    session_pid integer,
    CONSTRAINT sweeper_pkey PRIMARY KEY (standby)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=200, fillfactor=50);
COMMENT ON TABLE ff.sweeper IS 'The process that runs the sweeps, and the one that takes over from it. Unlogged: without a row the next process that looks takes the role.';
COMMENT ON COLUMN ff.sweeper.standby IS 'False: this process sweeps. True: it takes over.';
COMMENT ON COLUMN ff.sweeper.held_until_ms IS 'When the role is free again. Each look of the process moves it ahead.';
COMMENT ON COLUMN ff.sweeper.session_pid IS 'Server process of a session that ends with the worker process: the role is free once it has ended. NULL if there is none, as behind a pooler.';

CREATE UNLOGGED TABLE ff.waiter (
    topic text NOT NULL,
    waiter_id text NOT NULL,
    waiting_until_ms bigint NOT NULL,
    CONSTRAINT waiter_pkey PRIMARY KEY (topic, waiter_id)
) WITH (autovacuum_vacuum_scale_factor=0, autovacuum_vacuum_threshold=200, fillfactor=50);
COMMENT ON TABLE ff.waiter IS 'Processes that wait for a NOTIFY of a topic. A topic without a row here is not notified. Unlogged: a lost row costs one polling interval, never work.';
COMMENT ON COLUMN ff.waiter.topic IS 'lane:<lane_id>, worker:<worker_instance_id>, attempt, completion, lease, operator or stream.';
COMMENT ON COLUMN ff.waiter.waiting_until_ms IS 'When the registration expires. A process renews it while it waits.';

CREATE TABLE ff.waitpoint_hmac (
    kid text NOT NULL,
    secret bytea NOT NULL,
    rotated_at_ms bigint NOT NULL,
    active boolean NOT NULL,
    expires_at_ms bigint,
    CONSTRAINT waitpoint_hmac_pkey PRIMARY KEY (kid),
    CONSTRAINT waitpoint_hmac_active_never_expires CHECK ((active = (expires_at_ms IS NULL))),
    CONSTRAINT waitpoint_hmac_kid CHECK (((kid <> ''::text) AND (strpos(kid, ':'::text) = 0)))
);
CREATE UNIQUE INDEX waitpoint_hmac_one_active ON ff.waitpoint_hmac USING btree (active) WHERE active;
COMMENT ON TABLE ff.waitpoint_hmac IS 'Keys that sign grants and the tokens of waitpoints. One is active and signs; retired ones verify until they expire.';
COMMENT ON COLUMN ff.waitpoint_hmac.expires_at_ms IS 'Until when a retired key verifies; NULL for the active one.';

CREATE TABLE ff.waitpoint_pending (
    partition_key smallint NOT NULL,
    attempt_index integer NOT NULL,
    waitpoint_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    suspension_id uuid,
    created_at_ms bigint NOT NULL,
    activated_at_ms bigint,
    expires_at_ms bigint,
    closed_at_ms bigint,
    last_signal_at_ms bigint,
    last_hmac_validation_failed_at_ms bigint,
    signal_count integer DEFAULT 0 NOT NULL,
    state text DEFAULT 'pending'::text NOT NULL,
    waitpoint_key text NOT NULL,
    token_kid text NOT NULL,
    token text NOT NULL,
    close_reason text,
    required_signal_names text[] DEFAULT '{}'::text[] NOT NULL,
    signals jsonb DEFAULT '[]'::jsonb NOT NULL,
    answer_schema json,
    closed_as text GENERATED ALWAYS AS (
CASE
    WHEN (state <> 'closed'::text) THEN NULL::text
    WHEN ((expires_at_ms <= closed_at_ms) OR (close_reason ~~ 'timed_out%'::text)) THEN 'expired'::text
    WHEN (signal_count > 0) THEN 'answered'::text
    ELSE NULL::text
END) STORED,
    CONSTRAINT waitpoint_pending_pkey PRIMARY KEY (partition_key, waitpoint_id),
    CONSTRAINT waitpoint_pending_closed_with_a_reason CHECK ((((state = 'closed'::text) = (closed_at_ms IS NOT NULL)) AND ((state = 'closed'::text) = (close_reason IS NOT NULL)))),
    CONSTRAINT waitpoint_pending_signals_are_a_list CHECK ((jsonb_typeof(signals) = 'array'::text)),
    CONSTRAINT waitpoint_pending_state CHECK ((state = ANY (ARRAY['pending'::text, 'active'::text, 'closed'::text])))
);
CREATE INDEX waitpoint_pending_closed ON ff.waitpoint_pending USING btree (closed_as, closed_at_ms, waitpoint_id) WHERE (closed_as IS NOT NULL);
CREATE INDEX waitpoint_pending_execution ON ff.waitpoint_pending USING btree (execution_id, waitpoint_id);
CREATE INDEX waitpoint_pending_expiry ON ff.waitpoint_pending USING btree (expires_at_ms) WHERE (state = 'pending'::text);
CREATE INDEX waitpoint_pending_open ON ff.waitpoint_pending USING btree (created_at_ms, waitpoint_id) WHERE (state <> 'closed'::text);
COMMENT ON TABLE ff.waitpoint_pending IS 'One row per waitpoint: a place where an outsider with its token can signal an execution. Kept when closed, so that a late signal is told from a forged one; deleted with the execution.';
COMMENT ON COLUMN ff.waitpoint_pending.state IS 'pending: created ahead, signals are buffered; active: an open suspension waits for it; closed.';
COMMENT ON COLUMN ff.waitpoint_pending.token IS 'kid:digest; shown to the holder of the lease and to operators.';
COMMENT ON COLUMN ff.waitpoint_pending.required_signal_names IS 'Empty: any name.';
COMMENT ON COLUMN ff.waitpoint_pending.signals IS 'The signals that were accepted, in the order of their arrival; those of a pending waitpoint are buffered.';
COMMENT ON COLUMN ff.waitpoint_pending.answer_schema IS 'JSON schema of the payload that people are asked for, its fields in their order; NULL: a comment.';
COMMENT ON COLUMN ff.waitpoint_pending.closed_as IS 'expired: nobody answered in time; answered: a signal came first; NULL: open, or closed without either.';

CREATE TABLE ff.web_session (
    session_id uuid NOT NULL,
    session_hash bytea NOT NULL,
    token_hash bytea NOT NULL,
    address text NOT NULL,
    user_agent text NOT NULL,
    opened_at_ms bigint NOT NULL,
    last_seen_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    ends_at_ms bigint NOT NULL,
    CONSTRAINT web_session_pkey PRIMARY KEY (session_id),
    CONSTRAINT web_session_ends CHECK ((expires_at_ms <= ends_at_ms))
);
CREATE INDEX web_session_expiry ON ff.web_session USING btree (expires_at_ms);
CREATE UNIQUE INDEX web_session_hash ON ff.web_session USING btree (session_hash);
CREATE INDEX web_session_token ON ff.web_session USING btree (token_hash);
COMMENT ON TABLE ff.web_session IS 'Sessions of browsers: each was opened by a token, and ends with it.';
COMMENT ON COLUMN ff.web_session.session_hash IS 'SHA-256 of the cookie, which itself is stored nowhere.';
COMMENT ON COLUMN ff.web_session.token_hash IS 'SHA-256 of the token that opened it: one of api_token, or one that the server was started with.';
COMMENT ON COLUMN ff.web_session.expires_at_ms IS 'Moves ahead while the session is used, up to ends_at_ms.';

CREATE TABLE ff.worker_registry (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    worker_instance_id text NOT NULL,
    worker_id text NOT NULL,
    lanes text[] NOT NULL,
    capabilities text[] NOT NULL,
    kinds text[] NOT NULL,
    concurrency integer NOT NULL,
    last_heartbeat_ms bigint NOT NULL,
    liveness_ttl_ms bigint NOT NULL,
    registered_at_ms bigint NOT NULL,
    stuck_threads jsonb DEFAULT '{}'::jsonb NOT NULL,
    unclaimed_kinds text[] DEFAULT '{}'::text[] NOT NULL,
    loop_blocked_ms integer DEFAULT 0 NOT NULL,
    liveness_lock bigint,
    lock_missed_at_ms bigint,
    version text DEFAULT ''::text NOT NULL,
    host text DEFAULT ''::text NOT NULL,
    CONSTRAINT worker_registry_pkey PRIMARY KEY (partition_key, namespace, worker_instance_id)
) WITH (fillfactor=50);
COMMENT ON TABLE ff.worker_registry IS 'One row per live worker process, and what it offers.';
COMMENT ON COLUMN ff.worker_registry.last_heartbeat_ms IS 'When the process last sent a heartbeat.';
COMMENT ON COLUMN ff.worker_registry.liveness_ttl_ms IS 'Without a heartbeat for this long the process counts as dead.';
COMMENT ON COLUMN ff.worker_registry.stuck_threads IS 'By kind: how many threads of the process still run although their attempts are over.';
COMMENT ON COLUMN ff.worker_registry.unclaimed_kinds IS 'Kinds that the process does not claim until one of its stuck threads has returned.';
COMMENT ON COLUMN ff.worker_registry.loop_blocked_ms IS 'How long a handler kept the event loop of the process from running anything before the last heartbeat.';
COMMENT ON COLUMN ff.worker_registry.liveness_lock IS 'Key of the advisory lock that the session of the process holds while the process lives; NULL: the process holds none, and its leases last until they expire.';
COMMENT ON COLUMN ff.worker_registry.lock_missed_at_ms IS 'When a sweep first found the lock not held; NULL while the lock is held.';
COMMENT ON COLUMN ff.worker_registry.version IS 'Version of the package that the process runs, or what its program says.';

CREATE TABLE ff.worker_registry_event (
    partition_key smallint NOT NULL,
    namespace text NOT NULL,
    worker_instance_id text NOT NULL,
    event_at_ms bigint NOT NULL,
    event_kind text NOT NULL,
    worker_id text NOT NULL,
    reason text,
    CONSTRAINT worker_registry_event_pkey PRIMARY KEY (partition_key, namespace, worker_instance_id, event_at_ms, event_kind),
    CONSTRAINT worker_registry_event_event_kind CHECK ((event_kind = ANY (ARRAY['registered'::text, 'heartbeat'::text, 'marked_dead'::text, 'ttl_swept'::text])))
);
CREATE INDEX worker_registry_event_age ON ff.worker_registry_event USING btree (event_at_ms);
COMMENT ON TABLE ff.worker_registry_event IS 'When worker processes registered, sent their last heartbeat, and were removed.';

CREATE VIEW ff.execution AS
 SELECT e.partition_key,
    e.execution_id,
    e.route_id,
    e.flow_id,
    e.tags,
    e.priority,
    e.created_at_ms,
    GREATEST(e.last_mutation_at_ms, l.last_mutation_at_ms) AS last_mutation_at_ms,
        CASE
            WHEN (l.lease_id IS NULL) THEN (e.lifecycle_phase)::text
            ELSE 'active'::text
        END AS lifecycle_phase,
        CASE
            WHEN (l.lease_id IS NULL) THEN (e.eligibility_state)::text
            ELSE 'not_applicable'::text
        END AS eligibility_state,
        CASE
            WHEN (l.lease_id IS NULL) THEN (e.blocking_reason)::text
            ELSE 'none'::text
        END AS blocking_reason,
        CASE
            WHEN (l.lease_id IS NULL) THEN e.blocking_detail
            ELSE NULL::text
        END AS blocking_detail,
    e.terminal_outcome,
    e.exceptional_state,
        CASE
            WHEN (l.lease_id IS NULL) THEN (e.attempt_state)::text
            ELSE 'running_attempt'::text
        END AS attempt_state,
        CASE
            WHEN (l.lease_id IS NULL) THEN 'unowned'::text
            ELSE 'leased'::text
        END AS ownership_state,
        CASE
            WHEN (l.lease_id IS NOT NULL) THEN 'active'::text
            WHEN ((e.lifecycle_phase)::text = 'suspended'::text) THEN 'suspended'::text
            WHEN (((e.lifecycle_phase)::text = 'terminal'::text) AND ((e.terminal_outcome)::text = 'success'::text)) THEN 'completed'::text
            WHEN (((e.lifecycle_phase)::text = 'terminal'::text) AND ((e.terminal_outcome)::text <> 'none'::text)) THEN (e.terminal_outcome)::text
            WHEN (((e.eligibility_state)::text = 'eligible_now'::text) AND e.resume_pending) THEN 'resumable'::text
            WHEN ((e.eligibility_state)::text = 'not_eligible_until_time'::text) THEN 'delayed'::text
            WHEN ((e.eligibility_state)::text = 'blocked_by_dependencies'::text) THEN 'waiting_children'::text
            WHEN ((e.eligibility_state)::text = ANY (ARRAY['blocked_by_budget'::text, 'blocked_by_quota'::text])) THEN 'rate_limited'::text
            ELSE 'waiting'::text
        END AS public_state,
    (l.lease_id IS NOT NULL) AS leased,
    COALESCE(l.attempt_index, e.attempt_index) AS attempt_index,
    GREATEST(e.total_attempt_count, (l.attempt_index + 1)) AS total_attempt_count,
    e.retry_count,
    e.replay_count,
    COALESCE(l.lease_reclaim_count, e.lease_reclaim_count) AS lease_reclaim_count,
    e.infra_release_count,
    e.progress_pct,
    e.progress_message,
    (e.resume_pending AND (l.lease_id IS NULL)) AS resume_pending,
    (e.lease_lost AND (l.lease_id IS NULL)) AS lease_lost,
    e.flow_cancelled,
    e.signal_seq,
    e.compensates,
    e.quota_key_id,
    e.budget_ids,
    e.delay_until_ms,
    e.not_before_ms,
    e.deadline_at_ms,
    COALESCE(e.started_at_ms, l.attempt_started_at_ms) AS started_at_ms,
    e.terminal_at_ms,
    e.last_capability_mismatch_at_ms,
    COALESCE(l.lease_epoch, e.lease_epoch) AS lease_epoch,
    COALESCE(l.lease_id, e.lease_id) AS lease_id,
    l.lease_expires_at_ms,
    COALESCE(l.attempt_started_at_ms, e.attempt_started_at_ms) AS attempt_started_at_ms,
    l.attempt_timeout_at_ms,
    COALESCE(l.attempt_type, e.attempt_type) AS attempt_type,
    l.worker_id,
    l.worker_instance_id,
    e.failure_reason,
    e.failure_category,
    e.cancellation_reason,
    e.cancelled_by
   FROM (ff.exec_core e
     LEFT JOIN ff.lease l ON (((l.partition_key = ANY (ARRAY[e.partition_key])) AND (l.execution_id = e.execution_id) AND (l.lease_epoch = (e.lease_epoch + 1)))));
COMMENT ON VIEW ff.execution IS 'One row per execution as operations and people see it: exec_core, and the lease if a worker holds one. Without a lease, lifecycle_phase is runnable, suspended or terminal; with one it is active.';

CREATE VIEW ff.settled_flow AS
 SELECT partition_key,
    flow_id
   FROM ff.flow_summary s
  WHERE ((public_flow_state)::text = ANY (ARRAY['completed'::text, 'failed'::text, 'cancelled'::text]));
COMMENT ON VIEW ff.settled_flow IS 'Flows whose members have all ended, as of the last projection. Retention keeps members of other flows.';

CREATE VIEW ff.unused_grant AS
 SELECT g.partition_key,
    g.grant_id,
    g.execution_id,
    g.kind,
    g.worker_id,
    g.worker_instance_id,
    g.issued_at_ms,
    g.expires_at_ms
   FROM (ff.claim_grant g
     JOIN ff.execution e USING (partition_key, execution_id))
  WHERE ((g.lease_epoch >= e.lease_epoch) AND (e.lifecycle_phase <> 'terminal'::text));
COMMENT ON VIEW ff.unused_grant IS 'Grants whose execution was not leased since they were issued, and has not ended; some have expired.';

CREATE VIEW ff.worker_liveness AS
 SELECT partition_key,
    namespace,
    worker_instance_id,
    lock_missed_at_ms,
    ((liveness_lock IN ( SELECT (((l.classid)::bigint << 32) | (l.objid)::bigint)
           FROM pg_locks l
          WHERE ((l.locktype = 'advisory'::text) AND (l.objsubid = 1) AND l.granted AND (l.database = ( SELECT d.oid
                   FROM pg_database d
                  WHERE (d.datname = current_database())))))) OR (pg_postmaster_start_time() > (clock_timestamp() - '00:00:05'::interval))) AS connected
   FROM ff.worker_registry w
  WHERE (liveness_lock IS NOT NULL);
COMMENT ON VIEW ff.worker_liveness IS 'The worker processes that hold an advisory lock while they live, and whether it is held now.';

CREATE OR REPLACE FUNCTION ff.admit_by_key(p_key bigint)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
DECLARE
    now_ms constant bigint := ff.now_ms();
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    found record;
    refusal text;
BEGIN
    PERFORM ff.lock_quota_keys(ARRAY[p_key], true);
    SELECT r.* INTO found FROM ff.quota_room(ARRAY[p_key], now_ms) AS r;
    IF found.room = 0 THEN
        SELECT format('limit %s, key %L: %s', coalesce(quote_literal(p.name), p.quota_policy_id::text), q.dimension,
                      CASE WHEN found.slots = 0 THEN format('%s of %s run', p.active_concurrency_cap, p.active_concurrency_cap)
                           ELSE format('%s starts per %s s are used', p.max_requests_per_window,
                                       trim_scale(p.window_ms / 1000.0)) END) INTO refusal
          FROM ff.quota_key q JOIN ff.quota_policy p USING (quota_policy_id)
         WHERE q.partition_key = ff.quota_partition(p_key, partitions) AND q.quota_key_id = p_key;
        RETURN refusal;
    END IF;
    IF found.starts IS NOT NULL THEN
        INSERT INTO ff.quota_window (partition_key, quota_key_id, admitted_at_ms)
        VALUES (ff.quota_partition(p_key, partitions), p_key, now_ms);
    END IF;
    RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION ff.append_frames(partition_keys smallint[], execution_ids uuid[], attempt_indexes integer[], lease_epochs bigint[], lease_ids uuid[], append_ids uuid[], callers integer[], modes text[], frame_types text[], payloads bytea[], correlation_ids text[], replaces boolean[], ttls bigint[], maxlen_floors integer[], maxlen_ceilings integer[], ema_alphas double precision[])
 RETURNS TABLE(caller integer, last_ts_ms bigint, last_seq integer, frame_count bigint, summary_version integer)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_nestloop TO 'off'
 SET enable_hashjoin TO 'on'
AS $function$
#variable_conflict use_column
DECLARE
    summaries_kept constant integer := 64;
    held integer[];
    locked integer;
BEGIN
    SELECT array_agg(holder.caller) INTO held
      FROM (SELECT given.caller::integer AS caller
              FROM unnest(partition_keys, execution_ids, attempt_indexes, lease_epochs, lease_ids)
                   WITH ORDINALITY AS given (
                       partition_key, execution_id, attempt_index, lease_epoch, lease_id, caller)
              JOIN ff.lease l
                ON l.partition_key = ANY (ARRAY[given.partition_key])
               AND l.execution_id = ANY (ARRAY[given.execution_id])
             WHERE (l.attempt_index, l.lease_epoch, l.lease_id)
                   IS NOT DISTINCT FROM (given.attempt_index, given.lease_epoch, given.lease_id)
               AND l.lease_expires_at_ms > ff.now_ms()
             ORDER BY given.partition_key, given.execution_id
               FOR KEY SHARE OF l) AS holder;
    IF held IS NULL THEN
        RETURN;
    END IF;

    LOOP
        PERFORM FROM unnest(held) AS holder (caller)
           JOIN ff.stream_meta m
             ON m.partition_key = ANY (ARRAY[partition_keys[holder.caller]])
            AND m.execution_id = ANY (ARRAY[execution_ids[holder.caller]])
            AND m.attempt_index = ANY (ARRAY[attempt_indexes[holder.caller]])
            FOR NO KEY UPDATE OF m;
        GET DIAGNOSTICS locked = ROW_COUNT;
        EXIT WHEN locked = cardinality(held);
        INSERT INTO ff.stream_meta (partition_key, execution_id, attempt_index, created_at_ms, retention_maxlen)
        SELECT b.partition_key, b.execution_id, attempt_indexes[holder.caller], ff.now_ms(),
               coalesce(nullif(ff.policy_number(b.policy #> '{stream_policy,retention_maxlen}', 1000000), 0), 10000)
          FROM unnest(held) AS holder (caller)
          JOIN ff.exec_body b
            ON b.partition_key = ANY (ARRAY[partition_keys[holder.caller]])
           AND b.execution_id = ANY (ARRAY[execution_ids[holder.caller]])
            ON CONFLICT (partition_key, execution_id, attempt_index) DO NOTHING;
    END LOOP;

    RETURN QUERY
    WITH stream AS MATERIALIZED (  -- each with the instant of its new frames; seq goes on within a millisecond
        SELECT holder.caller AS number, m.*, coalesce(v.version, 0) AS version,
               coalesce(v.document_json, '{}') AS document_json,
               coalesce(m.append_id = append_ids[holder.caller], false) AS repeated,
               greatest(ff.now_ms(), m.last_ts_ms) AS ts_ms,
               CASE WHEN ff.now_ms() > m.last_ts_ms THEN 0 ELSE m.last_seq + 1 END AS first_seq
          FROM unnest(held) AS holder (caller)
          JOIN ff.stream_meta m
            ON m.partition_key = ANY (ARRAY[partition_keys[holder.caller]])
           AND m.execution_id = ANY (ARRAY[execution_ids[holder.caller]])
           AND m.attempt_index = ANY (ARRAY[attempt_indexes[holder.caller]])
          LEFT JOIN ff.stream_summary v
            ON v.partition_key = ANY (ARRAY[m.partition_key]) AND v.execution_id = ANY (ARRAY[m.execution_id])
           AND v.attempt_index = ANY (ARRAY[m.attempt_index])
    ), frame AS MATERIALIZED (     -- numbered within its stream, and within its mode
        SELECT given.*, row_number() OVER stream AS place, row_number() OVER of_mode AS place_of_mode
          FROM unnest(callers, modes, frame_types, payloads, correlation_ids, replaces, ttls, maxlen_floors,
                      maxlen_ceilings, ema_alphas) WITH ORDINALITY
            AS given (number, mode, frame_type, payload, correlation_id, replaces, ttl_ms, maxlen_floor,
                      maxlen_ceiling, ema_alpha, ordinal)
         WHERE given.number IN (SELECT number FROM stream WHERE NOT repeated)
        WINDOW stream AS (PARTITION BY given.number ORDER BY given.ordinal),
               of_mode AS (PARTITION BY given.number, given.mode ORDER BY given.ordinal)
    ), added AS (                  -- what each stream gets; the last best-effort frame says how they are counted
        SELECT number, count(*)::integer AS frames, sum(octet_length(payload)) AS bytes,
               count(*) FILTER (WHERE mode = 'durable')::integer AS durable,
               count(*) FILTER (WHERE mode = 'summary')::integer AS summary,
               count(*) FILTER (WHERE mode = 'best_effort')::integer AS best_effort,
               array_agg(convert_from(payload, 'UTF8')::jsonb ORDER BY ordinal) FILTER (WHERE mode = 'summary')
                   AS patches,
               array_agg(replaces ORDER BY ordinal) FILTER (WHERE mode = 'summary') AS replaces,
               (array_agg(ttl_ms ORDER BY ordinal DESC) FILTER (WHERE mode = 'best_effort'))[1] AS ttl_ms,
               (array_agg(maxlen_floor ORDER BY ordinal DESC) FILTER (WHERE mode = 'best_effort'))[1] AS maxlen_floor,
               (array_agg(maxlen_ceiling ORDER BY ordinal DESC) FILTER (WHERE mode = 'best_effort'))[1]
                   AS maxlen_ceiling,
               (array_agg(ema_alpha ORDER BY ordinal DESC) FILTER (WHERE mode = 'best_effort'))[1] AS ema_alpha
          FROM frame GROUP BY number
    ), change AS MATERIALIZED (    -- each stream, what it gets, and how many frames of each mode it keeps
        SELECT stream.*, added.frames, added.bytes, added.durable, added.summary, added.best_effort, added.ttl_ms,
               rate.hz AS rate_hz, stream.retention_maxlen AS durable_bound, summaries_kept AS summary_bound,
               CASE WHEN added.best_effort = 0 THEN stream.best_effort_kept
                    WHEN added.best_effort = 1 AND stream.last_append_ts_ms IS NULL THEN added.maxlen_floor
                    ELSE greatest(added.maxlen_floor, least(added.maxlen_ceiling,
                             ceil(rate.hz * added.ttl_ms / 1000) * 2))::integer END AS best_effort_bound,
               result.merged, result.applied
          FROM stream JOIN added USING (number)
         CROSS JOIN LATERAL (SELECT (CASE WHEN stream.last_append_ts_ms IS NULL
                   THEN added.maxlen_floor * 500.0 / added.ttl_ms
                   ELSE added.ema_alpha * 1000 / greatest(1, stream.ts_ms - stream.last_append_ts_ms)
                        + (1 - added.ema_alpha) * stream.ema_rate_hz END)::double precision AS hz) AS first
         CROSS JOIN LATERAL (     -- those of one call share a millisecond, which counts as one between them
               SELECT CASE added.best_effort WHEN 1 THEN first.hz
                           ELSE 1000 - (1000 - first.hz) * power(1 - added.ema_alpha, added.best_effort - 1) END
                      AS hz) AS rate
          LEFT JOIN LATERAL ff.merge_patches(stream.document_json, added.patches, added.replaces) AS result
            ON true  -- without patches the function is not called: it is strict
    ), inserted AS (               -- but for those that newer frames of this call push out at once
        INSERT INTO ff.stream_frame (
               partition_key, attempt_index, execution_id, ts_ms, ttl_ms, seq, summary_version, mode, frame_type,
               correlation_id, payload)
        SELECT change.partition_key, change.attempt_index, change.execution_id, change.ts_ms, frame.ttl_ms,
               change.first_seq + frame.place - 1,
               CASE frame.mode WHEN 'summary' THEN change.version + frame.place_of_mode END,
               frame.mode, frame.frame_type, frame.correlation_id,
               CASE WHEN frame.replaces
                    THEN convert_to(change.applied[frame.place_of_mode]::text, 'UTF8') ELSE frame.payload END
          FROM frame JOIN change USING (number)
         WHERE frame.place_of_mode > CASE frame.mode WHEN 'durable' THEN change.durable - change.durable_bound
                                                     WHEN 'summary' THEN change.summary - change.summary_bound
                                                     ELSE change.best_effort - change.best_effort_bound END
    ), over_bound AS MATERIALIZED ( -- of each mode the newest frame that is to go
        SELECT change.partition_key, change.execution_id, change.attempt_index, given.mode, newest.ts_ms, newest.seq
          FROM change
         CROSS JOIN LATERAL (VALUES
               ('durable', change.durable_kept, change.durable, change.durable_bound),
               ('summary', change.summary_kept, change.summary, change.summary_bound),
               ('best_effort', change.best_effort_kept, change.best_effort, change.best_effort_bound))
            AS given (mode, kept, more, most)
         CROSS JOIN LATERAL (
               SELECT o.ts_ms, o.seq FROM ff.stream_frame o
                WHERE (o.partition_key, o.execution_id, o.attempt_index)
                    = (change.partition_key, change.execution_id, change.attempt_index)
                  AND o.mode = given.mode
                ORDER BY o.ts_ms, o.seq
               OFFSET least(given.kept, given.kept + given.more - given.most) - 1 LIMIT 1) AS newest
         WHERE given.kept > 0 AND given.more > 0 AND given.kept + given.more > given.most
    ), trimmed AS (
        DELETE FROM ff.stream_frame f USING over_bound o
         WHERE f.partition_key = ANY (ARRAY[o.partition_key]) AND f.execution_id = ANY (ARRAY[o.execution_id])
           AND f.attempt_index = ANY (ARRAY[o.attempt_index])
           AND (f.ts_ms, f.seq) <= (o.ts_ms, o.seq) AND f.mode = o.mode
    ), summarised AS (
        INSERT INTO ff.stream_summary AS v (
               partition_key, attempt_index, execution_id, first_applied_ms, last_updated_ms, version, document_json)
        SELECT partition_key, attempt_index, execution_id, ts_ms, ts_ms, version + summary, merged
          FROM change WHERE summary > 0
            ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE
           SET last_updated_ms = EXCLUDED.last_updated_ms, version = EXCLUDED.version,
               document_json = EXCLUDED.document_json
    ), counted AS (
        UPDATE ff.stream_meta m
           SET append_id = append_ids[change.number], last_ts_ms = change.ts_ms,
               last_seq = change.first_seq + change.frames - 1,
               frame_count = m.frame_count + change.frames, total_bytes = m.total_bytes + change.bytes,
               durable_kept = least(m.durable_kept + change.durable, change.durable_bound),
               summary_kept = least(m.summary_kept + change.summary, change.summary_bound),
               best_effort_kept = least(m.best_effort_kept + change.best_effort, change.best_effort_bound),
               has_durable_frame = m.has_durable_frame OR change.durable + change.summary > 0,
               ema_rate_hz = coalesce(change.rate_hz, m.ema_rate_hz),
               last_append_ts_ms = CASE change.best_effort WHEN 0 THEN m.last_append_ts_ms ELSE change.ts_ms END,
               maxlen_applied_last = CASE change.best_effort WHEN 0 THEN m.maxlen_applied_last
                                          ELSE change.best_effort_bound END,
               best_effort_ttl_ms = coalesce(change.ttl_ms, m.best_effort_ttl_ms),
               expires_at_ms = CASE WHEN m.has_durable_frame OR change.durable + change.summary > 0 THEN NULL
                                    ELSE coalesce(m.expires_at_ms, change.ts_ms + 2 * change.ttl_ms) END
          FROM change
         WHERE m.partition_key = ANY (ARRAY[change.partition_key])
           AND m.execution_id = ANY (ARRAY[change.execution_id])
           AND m.attempt_index = ANY (ARRAY[change.attempt_index])
    )
    SELECT number, coalesce(change.ts_ms, stream.last_ts_ms),
           coalesce(change.first_seq + change.frames - 1, stream.last_seq),
           stream.frame_count + coalesce(change.frames, 0), stream.version + coalesce(change.summary, 0)
      FROM stream LEFT JOIN change USING (number);

    -- A process that waits for one stream is told of all, and knows which of its readers to wake.
    IF EXISTS (SELECT FROM ff.waiter w WHERE w.topic = 'stream' AND w.waiting_until_ms > ff.now_ms()) THEN
        PERFORM pg_notify('ff_wake', 'stream:' || execution_ids[holder.caller])
           FROM unnest(held) AS holder (caller);
    END IF;
END
$function$;

CREATE OR REPLACE FUNCTION ff.best_queued(p_routes bigint[], p_wanted integer, p_now_ms bigint, p_worker_id text, p_any_grant boolean, p_seen_keys bigint[] DEFAULT NULL::bigint[], p_seen_ids uuid[] DEFAULT NULL::uuid[], OUT places tid[], OUT ids uuid[])
 RETURNS record
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_sort TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
DECLARE
    -- How many of each route are read at first. A route has more of the best than its chunk only if its whole chunk
    -- is among the best.
    chunk constant integer := least(p_wanted, 2 + 3 * p_wanted / (2 * cardinality(p_routes)));
BEGIN
    WITH head AS MATERIALIZED (
        SELECT route.route_id, best.place, best.priority, best.created_at_ms, best.execution_id
          FROM unnest(p_routes) AS route (route_id) CROSS JOIN LATERAL (
               SELECT e.ctid AS place, e.priority, e.created_at_ms, e.execution_id FROM ff.ready e
                WHERE e.route_id = route.route_id
                  AND (e.deadline_at_ms IS NULL OR e.deadline_at_ms > p_now_ms)
                  AND (e.quota_key_id IS NULL OR e.quota_key_id NOT IN (SELECT unnest(p_seen_keys)))
                  AND e.execution_id NOT IN (SELECT unnest(p_seen_ids))
                  AND (NOT p_any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, p_worker_id))
                ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
                LIMIT chunk) AS best
         ORDER BY best.priority DESC, best.created_at_ms, best.execution_id
         LIMIT p_wanted
    ), more AS (
        SELECT best.place, best.priority, best.created_at_ms, best.execution_id
          FROM (SELECT head.route_id FROM head GROUP BY head.route_id
                HAVING count(*) = chunk AND chunk < p_wanted) AS route
         CROSS JOIN LATERAL (
               SELECT e.ctid AS place, e.priority, e.created_at_ms, e.execution_id FROM ff.ready e
                WHERE e.route_id = route.route_id
                  AND (e.deadline_at_ms IS NULL OR e.deadline_at_ms > p_now_ms)
                  AND (e.quota_key_id IS NULL OR e.quota_key_id NOT IN (SELECT unnest(p_seen_keys)))
                  AND e.execution_id NOT IN (SELECT unnest(p_seen_ids))
                  AND (NOT p_any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, p_worker_id))
                ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
               OFFSET chunk LIMIT p_wanted - chunk) AS best
    )
    SELECT array_agg(best.place), array_agg(best.execution_id) INTO places, ids
      FROM (SELECT head.place, head.priority, head.created_at_ms, head.execution_id FROM head
             UNION ALL
            SELECT * FROM more
             ORDER BY 2 DESC, 3, 4 LIMIT p_wanted) AS best;
END
$function$;

CREATE OR REPLACE FUNCTION ff.budget_id(given text)
 RETURNS uuid
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    digest bytea;
BEGIN
    IF given ~* '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN
        RETURN given::uuid;
    END IF;
    digest := substr(sha256(convert_to('flowfabric.budget' || E'\x1f' || given, 'UTF8')), 1, 16);
    digest := set_byte(digest, 6, (get_byte(digest, 6) & 15) | 80);
    digest := set_byte(digest, 8, (get_byte(digest, 8) & 63) | 128);
    RETURN encode(digest, 'hex')::uuid;
END
$function$;

CREATE OR REPLACE FUNCTION ff.budget_partition(budget_id uuid)
 RETURNS smallint
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN ((ff.crc16(uuid_send(budget_id)) % COALESCE((SELECT partition_config.num_budget_partitions FROM ff.partition_config), 32)))::smallint;

CREATE OR REPLACE FUNCTION ff.budgets_queued()
 RETURNS boolean
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
BEGIN
    RETURN EXISTS (SELECT FROM ff.ready r WHERE r.budget_ids IS NOT NULL);
END
$function$;

CREATE OR REPLACE FUNCTION ff.claimable(p_lanes text[], p_namespace text, p_kinds text[], p_capabilities text[], p_limit integer, p_worker_id text DEFAULT ''::text, p_takes boolean DEFAULT true, p_limits boolean DEFAULT true, p_seen pg_snapshot DEFAULT NULL::pg_snapshot)
 RETURNS TABLE(place tid, held_back integer[])
 LANGUAGE plpgsql
 ROWS 1
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_sort TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
DECLARE
    routes bigint[];
    wanted integer := p_limit;  -- how many the merge finds
    missing integer := p_limit;
    locked integer;
    places tid[];
    ids uuid[];
    tried uuid[] := '{}';
    now_ms constant bigint := ff.now_ms();
    any_grant constant boolean := EXISTS (SELECT FROM ff.claim_grant WHERE expires_at_ms > ff.now_ms());
BEGIN
    SELECT array_agg(r.route_id) INTO routes
      FROM ff.route r
     WHERE r.lane_id = ANY (p_lanes) AND r.namespace = p_namespace
       AND r.lane_id <> ALL (ARRAY(SELECT l.lane_id FROM ff.lane_registry l
                                    WHERE l.lane_id = ANY (p_lanes) AND l.lane_state IN ('paused', 'disabled')))
       AND (p_kinds IS NULL OR r.execution_kind IN (SELECT unnest(p_kinds)))
       AND r.required_capabilities <@ p_capabilities;

    IF p_limits AND routes IS NOT NULL AND EXISTS (SELECT FROM ff.ready e WHERE e.quota_key_id IS NOT NULL) THEN
        RETURN QUERY SELECT * FROM ff.claimable_limited(routes, p_limit, p_worker_id, any_grant, p_takes, p_seen);
        RETURN;
    END IF;

    IF cardinality(routes) = 1 THEN
        RETURN QUERY
        SELECT e.ctid, NULL::integer[] FROM ff.ready e
         WHERE e.route_id = routes[1]
           AND (e.deadline_at_ms IS NULL OR e.deadline_at_ms > now_ms)
           AND (NOT any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, p_worker_id))
         ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
         LIMIT p_limit FOR UPDATE SKIP LOCKED;
        RETURN;
    END IF;

    WHILE missing > 0 AND routes IS NOT NULL LOOP
        SELECT best.places, best.ids INTO places, ids
          FROM ff.best_queued(routes, wanted, now_ms, p_worker_id, any_grant) AS best;
        RETURN QUERY
        SELECT e.ctid, NULL::integer[]
          FROM unnest(places, ids) AS best (place, execution_id)
          JOIN ff.ready e ON e.ctid = best.place AND e.execution_id = best.execution_id
         WHERE best.execution_id NOT IN (SELECT unnest(tried))
           AND (NOT any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, p_worker_id))
         LIMIT missing FOR UPDATE OF e SKIP LOCKED;
        GET DIAGNOSTICS locked = ROW_COUNT;
        missing := missing - locked;
        EXIT WHEN coalesce(cardinality(places), 0) < wanted;
        tried := tried || ids;
        wanted := 4 * wanted;
    END LOOP;
END
$function$;

CREATE OR REPLACE FUNCTION ff.claimable_in_budget(p_lanes text[], p_namespace text, p_kinds text[], p_capabilities text[], p_limit integer, p_worker_id text, p_takes boolean, p_seen pg_snapshot DEFAULT NULL::pg_snapshot)
 RETURNS TABLE(place tid, held_back integer[], out_of_budget text[])
 LANGUAGE plpgsql
 ROWS 1
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
DECLARE
    rounds constant integer := 5;
    began_ms constant bigint := ff.now_ms();
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    looked_at integer := p_limit;
    places tid[];
    counted integer[];
    limited_places tid[]; limited_keys bigint[];    -- those of the places that have a limit and a budget
    look_again boolean := false;
    outcome record;
    dimensions text[] := '{}';
BEGIN
    FOR round IN 1 .. rounds LOOP
        places := ARRAY(SELECT c.place FROM ff.claimable(p_lanes, p_namespace, p_kinds, p_capabilities, looked_at,
                                                         p_worker_id, p_limits => false) AS c);
        outcome := ff.hold_out_of_budget(places);
        EXIT WHEN outcome.spent IS NULL;
        dimensions := dimensions || coalesce(outcome.held, '{}');
        look_again := round = rounds;
        looked_at := least(500, 4 * looked_at);
    END LOOP;

    IF EXISTS (SELECT FROM ff.ready e WHERE e.quota_key_id IS NOT NULL) THEN
        SELECT array_agg(c.place) FILTER (WHERE c.place IS NOT NULL), max(c.held_back) INTO places, counted
          FROM ff.claimable(p_lanes, p_namespace, p_kinds, p_capabilities, p_limit, p_worker_id,
                            p_takes => p_takes, p_seen => p_seen) AS c;
        -- What the limits passed over is replaced by others, at which no round has looked.
        SELECT array_agg(r.ctid), array_agg(r.quota_key_id) INTO limited_places, limited_keys
          FROM unnest(places) AS p (place) JOIN ff.ready r ON r.ctid = p.place
         WHERE r.quota_key_id IS NOT NULL AND r.budget_ids IS NOT NULL;
        outcome := ff.hold_out_of_budget(places);
        dimensions := dimensions || coalesce(outcome.held, '{}');
        look_again := look_again OR outcome.spent IS NOT NULL;
        IF p_takes AND outcome.spent IS NOT NULL THEN
            -- The keys are locked: the newest starts are those that were counted here.
            DELETE FROM ff.quota_window w
             USING (SELECT given.k, count(*) AS n
                      FROM unnest(limited_places, limited_keys) AS given (place, k)
                     WHERE NOT EXISTS (SELECT FROM ff.ready r
                                        WHERE r.ctid = given.place AND NOT r.budget_ids && outcome.spent)
                     GROUP BY given.k) AS key
             CROSS JOIN LATERAL (
                   SELECT s.admitted_at_ms, s.start_no FROM ff.quota_window s
                    WHERE s.partition_key = ff.quota_partition(key.k, partitions) AND s.quota_key_id = key.k
                      AND s.admitted_at_ms >= began_ms
                    ORDER BY s.start_no DESC LIMIT key.n) AS start
             WHERE w.partition_key = ff.quota_partition(key.k, partitions) AND w.quota_key_id = key.k
               AND (w.admitted_at_ms, w.start_no) = (start.admitted_at_ms, start.start_no);
        END IF;
    END IF;
    RETURN QUERY
    SELECT r.ctid, NULL::integer[], NULL::text[]
      FROM unnest(places) WITH ORDINALITY AS p (place, position)
      JOIN ff.ready r ON r.ctid = p.place
     WHERE r.budget_ids IS NULL OR NOT r.budget_ids && coalesce(outcome.spent, '{}')
     ORDER BY p.position LIMIT p_limit;
    IF counted IS NOT NULL OR dimensions <> '{}' OR look_again THEN
        RETURN QUERY SELECT NULL::tid,
            ARRAY[coalesce(counted[1], 0), coalesce(counted[2], 0), greatest(counted[3], look_again::integer)],
            dimensions;
    END IF;
END
$function$;

CREATE OR REPLACE FUNCTION ff.claimable_limited(p_routes bigint[], p_limit integer, p_worker_id text, p_any_grant boolean, p_takes boolean, p_seen pg_snapshot)
 RETURNS TABLE(place tid, held_back integer[])
 LANGUAGE plpgsql
 ROWS 1
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_bitmapscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
DECLARE
    rounds constant integer := 4;
    further constant integer := 500;    -- how many more leave the queue in one round
    enough constant integer := 100;     -- a claim that has got so many may leave in the queue what it cannot take
    now_ms constant bigint := ff.now_ms();
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    missing integer := p_limit;
    wanted integer;
    seen_keys bigint[] := '{}';         -- of earlier rounds
    seen_ids uuid[] := '{}';
    places tid[]; ids uuid[];           -- what a round finds
    free_places tid[];                  -- found, locked, and without a key
    found_places tid[]; found_ids uuid[]; found_keys bigint[]; found_priorities integer[]; found_instants bigint[];
    keys bigint[]; rooms integer[]; slots integer[]; starts integer[];  -- those that are locked
    taken_places tid[]; taken_ids uuid[]; taken_keys bigint[];
    older_partitions smallint[]; older_ids uuid[];
    full_keys bigint[];                 -- those that have nothing left
    got integer := 0;                   -- in all rounds
    passed_over integer := 0;           -- found and not taken, in all rounds
    goes_on boolean;
    by_rate integer := 0;
    by_cap integer := 0;
    more_rate integer;
    more_cap integer;
    passes boolean;                     -- one that was not found is better
    found_count integer;
    look_again boolean := false;
BEGIN
    FOR round IN 1 .. rounds LOOP
        wanted := missing;
        SELECT best.places, best.ids INTO places, ids
          FROM ff.best_queued(p_routes, wanted, now_ms, p_worker_id, p_any_grant, seen_keys, seen_ids) AS best;
        EXIT WHEN places IS NULL;

        SELECT array_agg(l.place) FILTER (WHERE l.quota_key_id IS NULL),
               array_agg(l.place) FILTER (WHERE l.quota_key_id IS NOT NULL),
               array_agg(l.execution_id) FILTER (WHERE l.quota_key_id IS NOT NULL),
               array_agg(l.quota_key_id) FILTER (WHERE l.quota_key_id IS NOT NULL),
               array_agg(l.priority) FILTER (WHERE l.quota_key_id IS NOT NULL),
               array_agg(l.created_at_ms) FILTER (WHERE l.quota_key_id IS NOT NULL)
          INTO free_places, found_places, found_ids, found_keys, found_priorities, found_instants
          FROM (SELECT e.ctid AS place, e.execution_id, e.quota_key_id, e.priority, e.created_at_ms
                  FROM unnest(places, ids) AS best (place, execution_id)
                  JOIN ff.ready e ON e.ctid = best.place AND e.execution_id = best.execution_id
                 WHERE NOT p_any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, p_worker_id)
                   FOR UPDATE OF e SKIP LOCKED) AS l;
        missing := missing - coalesce(cardinality(free_places), 0);
        got := got + coalesce(cardinality(free_places), 0);
        RETURN QUERY SELECT unnest(free_places), NULL::integer[];

        IF found_keys IS NOT NULL THEN
            keys := ARRAY(SELECT quota_key_id FROM ff.lock_quota_keys(found_keys, round = 1));
            look_again := look_again OR EXISTS (SELECT unnest(found_keys) EXCEPT SELECT unnest(keys));
            SELECT array_agg(r.quota_key_id), array_agg(r.room), array_agg(r.slots), array_agg(r.starts)
              INTO keys, rooms, slots, starts
              FROM ff.quota_room(keys, now_ms) AS r;

            -- What was queued after the calling statement began, it cannot lease, and it must not count as a start.
            -- A number that no transaction has had yet is one of the server from which the database was restored.
            IF p_takes AND p_seen IS NOT NULL AND array_remove(starts, NULL) <> '{}' THEN
                found_count := cardinality(found_places);
                SELECT coalesce(array_agg(r.ctid), '{}'), coalesce(array_agg(r.execution_id), '{}'),
                       coalesce(array_agg(r.quota_key_id), '{}'), coalesce(array_agg(r.priority), '{}'),
                       coalesce(array_agg(r.created_at_ms), '{}')
                  INTO found_places, found_ids, found_keys, found_priorities, found_instants
                  FROM unnest(found_places) AS found (place) JOIN ff.ready r ON r.ctid = found.place
                 WHERE pg_visible_in_snapshot(r.queued_by, p_seen)
                    OR r.queued_by >= pg_snapshot_xmax(pg_current_snapshot());
                look_again := look_again OR cardinality(found_places) < found_count;
            END IF;

            -- Of each key the best among those that were found and those that are held back. Rows of keys and of
            -- executions are brought together by windows: a join of two arrays would compare all with all.
            WITH RECURSIVE found AS MATERIALIZED (
                SELECT f.*, bool_or(f.is_key) OVER (PARTITION BY f.k) AS locked,
                       least(max(f.room) OVER (PARTITION BY f.k),
                             count(*) FILTER (WHERE NOT f.is_key) OVER (PARTITION BY f.k))::integer AS n
                  FROM (SELECT false AS is_key, f.place, f.execution_id, f.k, f.priority, f.created_at_ms,
                               NULL::integer AS room
                          FROM unnest(found_places, found_ids, found_keys, found_priorities, found_instants)
                               AS f (place, execution_id, k, priority, created_at_ms)
                         UNION ALL
                        SELECT true, NULL, NULL, key.k, NULL, NULL, key.room
                          FROM unnest(keys, rooms) AS key (k, room)) AS f
            ), held_route (k, n, route_id) AS (     -- of each key the routes of those that are held back
                SELECT found.k, found.n, (SELECT c.route_id FROM ff.exec_core c
                                           WHERE c.quota_key_id = found.k
                                             AND c.exceptional_state = 'blocked_by_quota'
                                           ORDER BY c.route_id LIMIT 1)
                  FROM found WHERE found.is_key AND found.n > 0
                 UNION ALL
                SELECT held.k, held.n, (SELECT c.route_id FROM ff.exec_core c
                                         WHERE c.quota_key_id = held.k AND c.route_id > held.route_id
                                           AND c.exceptional_state = 'blocked_by_quota'
                                         ORDER BY c.route_id LIMIT 1)
                  FROM held_route AS held WHERE held.route_id IS NOT NULL
            ), queued_route (k, n, route_id) AS (   -- and of those that are queued
                SELECT found.k, found.n, (SELECT r.route_id FROM ff.ready r
                                           WHERE r.quota_key_id = found.k ORDER BY r.route_id LIMIT 1)
                  FROM found WHERE found.is_key AND found.n > 0
                 UNION ALL
                SELECT queued.k, queued.n, (SELECT r.route_id FROM ff.ready r
                                             WHERE r.quota_key_id = queued.k AND r.route_id > queued.route_id
                                             ORDER BY r.route_id LIMIT 1)
                  FROM queued_route AS queued WHERE queued.route_id IS NOT NULL
            ), best AS (
                SELECT b.*, row_number() OVER (PARTITION BY b.k
                                               ORDER BY b.priority DESC, b.created_at_ms, b.execution_id) AS rank
                  FROM (SELECT found.place, NULL::smallint AS partition_key, found.execution_id, found.k,
                               found.priority, found.created_at_ms, found.n
                          FROM found WHERE found.locked AND NOT found.is_key
                         UNION ALL
                        SELECT NULL, older.partition_key, older.execution_id, held.k, older.priority,
                               older.created_at_ms, held.n
                          FROM held_route AS held CROSS JOIN LATERAL (
                               SELECT c.partition_key, c.execution_id, c.priority, c.created_at_ms
                                 FROM ff.exec_core c
                                WHERE c.quota_key_id = held.k AND c.route_id = held.route_id
                                  AND c.exceptional_state = 'blocked_by_quota'
                                ORDER BY c.priority DESC, c.created_at_ms, c.execution_id
                                LIMIT held.n) AS older
                         WHERE held.route_id = ANY (p_routes)
                         UNION ALL
                        SELECT NULL, NULL, other.execution_id, queued.k, other.priority, other.created_at_ms,
                               queued.n
                          FROM queued_route AS queued CROSS JOIN LATERAL (
                               SELECT r.execution_id, r.priority, r.created_at_ms
                                 FROM ff.ready r
                                WHERE r.quota_key_id = queued.k AND r.route_id = queued.route_id
                                  AND (r.deadline_at_ms IS NULL OR r.deadline_at_ms > now_ms)
                                  AND r.execution_id NOT IN (SELECT unnest(found_ids))    -- hashed
                                  AND (NOT p_any_grant
                                       OR NOT ff.reserved(r.partition_key, r.execution_id, p_worker_id))
                                ORDER BY r.priority DESC, r.created_at_ms, r.execution_id
                                LIMIT queued.n) AS other
                         WHERE queued.route_id = ANY (p_routes)) AS b
            )
            SELECT array_agg(best.place) FILTER (WHERE best.place IS NOT NULL),
                   array_agg(best.execution_id) FILTER (WHERE best.place IS NOT NULL),
                   array_agg(best.k) FILTER (WHERE best.place IS NOT NULL),
                   array_agg(best.partition_key) FILTER (WHERE best.partition_key IS NOT NULL),
                   array_agg(best.execution_id) FILTER (WHERE best.partition_key IS NOT NULL),
                   bool_or(best.place IS NULL AND best.partition_key IS NULL)
              INTO taken_places, taken_ids, taken_keys, older_partitions, older_ids, passes
              FROM best WHERE best.rank <= best.n;
            missing := missing - coalesce(cardinality(taken_places), 0);
            got := got + coalesce(cardinality(taken_places), 0);
            passed_over := passed_over + cardinality(found_places) - coalesce(cardinality(taken_places), 0);
            goes_on := missing > 0 AND (got < enough OR passed_over > 4 * got);
            look_again := look_again OR coalesce(passes, false);
            RETURN QUERY SELECT unnest(taken_places), NULL::integer[];

            IF p_takes THEN
                INSERT INTO ff.quota_window (partition_key, quota_key_id, admitted_at_ms)
                SELECT ff.quota_partition(taken.k, partitions), taken.k, now_ms
                  FROM unnest(taken_keys) AS taken (k)
                 WHERE taken.k NOT IN (SELECT key.k FROM unnest(keys, starts) AS key (k, starts)
                                        WHERE key.starts IS NULL);
            END IF;

            -- Keys that have nothing left. A used up rate has an instant at which the next may start.
            SELECT array_agg(key.k) INTO full_keys
              FROM (SELECT key.k
                      FROM (SELECT key.k, key.room, 0 AS taken FROM unnest(keys, rooms) AS key (k, room)
                             UNION ALL
                            SELECT taken.k, NULL, 1 FROM unnest(taken_keys) AS taken (k)) AS key
                     GROUP BY key.k HAVING max(key.room) <= sum(key.taken)) AS key;
            IF full_keys IS NOT NULL AND p_takes AND array_remove(starts, NULL) <> '{}' THEN
                UPDATE ff.quota_key q SET next_at_ms = rate.starts_again_at_ms
                  FROM ff.quota_room(full_keys, now_ms) AS rate
                 WHERE rate.starts = 0 AND rate.starts_again_at_ms IS NOT NULL
                   AND q.partition_key = ff.quota_partition(rate.quota_key_id, partitions)
                   AND q.quota_key_id = rate.quota_key_id
                   AND q.next_at_ms IS DISTINCT FROM rate.starts_again_at_ms;
            END IF;

            IF full_keys IS NOT NULL AND p_takes AND goes_on THEN
                WITH over AS MATERIALIZED (
                    SELECT r.ctid AS place, r.partition_key, r.execution_id, r.quota_key_id
                      FROM unnest(full_keys) AS key (k)
                      JOIN ff.ready r ON r.quota_key_id = key.k AND r.route_id = ANY (p_routes)
                     WHERE r.execution_id NOT IN (SELECT unnest(taken_ids))   -- hashed
                     LIMIT cardinality(found_ids) + further FOR UPDATE OF r SKIP LOCKED
                ), free AS MATERIALIZED (
                    SELECT over.place, over.quota_key_id, e.partition_key, e.execution_id
                      FROM over CROSS JOIN LATERAL (
                           SELECT c.partition_key, c.execution_id FROM ff.exec_core c
                            WHERE c.partition_key = over.partition_key AND c.execution_id = over.execution_id
                              FOR NO KEY UPDATE SKIP LOCKED) AS e
                ), blocked AS (
                    UPDATE ff.exec_core e
                       SET eligibility_state = 'blocked_by_quota', blocking_reason = 'waiting_for_quota',
                           last_mutation_at_ms = now_ms
                      FROM free
                     WHERE e.partition_key = free.partition_key AND e.execution_id = free.execution_id
                ), dequeued AS (
                    DELETE FROM ff.ready r USING free WHERE r.ctid = free.place
                )
                SELECT count(*) FILTER (WHERE free.by_rate), count(*) FILTER (WHERE NOT free.by_rate)
                  INTO more_rate, more_cap
                  FROM (SELECT free.quota_key_id NOT IN (
                                   SELECT key.k FROM unnest(keys, slots, starts) AS key (k, slots, starts)
                                    WHERE NOT coalesce(key.starts <= key.slots, key.slots IS NULL)) AS by_rate
                          FROM free) AS free;
                by_rate := by_rate + more_rate;
                by_cap := by_cap + more_cap;
            END IF;

            IF older_ids IS NOT NULL AND p_takes THEN
                WITH free AS MATERIALIZED (
                    SELECT e.partition_key, e.execution_id
                      FROM unnest(older_partitions, older_ids) AS older (partition_key, execution_id)
                     CROSS JOIN LATERAL (
                           SELECT c.partition_key, c.execution_id FROM ff.exec_core c
                            WHERE c.partition_key = older.partition_key AND c.execution_id = older.execution_id
                              AND c.exceptional_state = 'blocked_by_quota'
                              FOR NO KEY UPDATE SKIP LOCKED) AS e
                ), freed AS (
                    UPDATE ff.exec_core e
                       SET eligibility_state = 'eligible_now', blocking_reason = 'waiting_for_worker',
                           blocking_detail = NULL, last_mutation_at_ms = now_ms
                      FROM free
                     WHERE e.partition_key = free.partition_key AND e.execution_id = free.execution_id
                    RETURNING e.route_id, e.created_at_ms, e.priority, e.partition_key, e.execution_id,
                              e.deadline_at_ms, e.quota_key_id, e.budget_ids
                ), queued AS (
                    INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id,
                                          deadline_at_ms, quota_key_id, budget_ids, queued_by)
                    SELECT freed.*, pg_current_xact_id() FROM freed
                ), lanes AS (
                    SELECT DISTINCT route.lane_id FROM freed JOIN ff.route route USING (route_id)
                )
                SELECT look_again OR count(ff.wake('lane:' || lanes.lane_id)) > 0 OR count(*) > 0
                  INTO look_again FROM lanes;
            END IF;
            seen_keys := seen_keys || found_keys;
            look_again := look_again OR missing > 0 AND NOT goes_on;
            EXIT WHEN NOT goes_on;
        END IF;

        EXIT WHEN missing <= 0;
        EXIT WHEN cardinality(places) < wanted;
        seen_ids := seen_ids || ids;
        look_again := look_again OR round = rounds;
    END LOOP;
    IF by_rate > 0 OR by_cap > 0 OR look_again THEN
        RETURN QUERY SELECT NULL::tid, ARRAY[by_rate, by_cap, look_again::integer];
    END IF;
END
$function$;

CREATE OR REPLACE FUNCTION ff.crc16(data bytea)
 RETURNS integer
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    crc integer := 0;
    x integer;
BEGIN
    FOR i IN 0 .. octet_length(data) - 1 LOOP
        x := (crc >> 8) # get_byte(data, i);
        x := x # (x >> 4);
        crc := ((crc << 8) # (x << 12) # (x << 5) # x) & 65535;
    END LOOP;
    RETURN crc;
END
$function$;

CREATE OR REPLACE FUNCTION ff.create_execution(shape_namespace text[], shape_lane_id text[], shape_execution_kind text[], shape_required_capabilities text[], shape_payload_encoding text[], shape_creator_identity text[], shape_policy jsonb[], given_partition_key smallint[], given_execution_id uuid[], given_shape integer[], given_payload bytea[], given_priority integer[], given_delay_ms bigint[], given_delay_until_ms bigint[], given_deadline_ms bigint[], given_deadline_at_ms bigint[], given_idempotency_key text[], given_dedup_window_ms bigint[], given_tags jsonb[], given_now_ms bigint DEFAULT NULL::bigint, given_flow_id uuid[] DEFAULT NULL::uuid[], given_held boolean[] DEFAULT NULL::boolean[], given_member_name text[] DEFAULT NULL::text[], given_fresh boolean DEFAULT false, given_quota_policy_id uuid[] DEFAULT NULL::uuid[], given_quota_dimension text[] DEFAULT NULL::text[], given_unique_scope text[] DEFAULT NULL::text[])
 RETURNS TABLE(ordinal bigint, partition_key smallint, execution_id uuid, created boolean, public_state text, differs text[])
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
DECLARE
    now_ms constant bigint := coalesce(given_now_ms, ff.now_ms());
    last_ms constant bigint := 253402300799999;
    routes bigint[] := '{}';
    policy_deadlines bigint[] := '{}';
    budgets text[];             -- the budgets of each shape, as an array in words; NULL if no shape has any
    any_instant boolean := given_delay_until_ms IS NOT NULL OR given_deadline_ms IS NOT NULL
                           OR given_deadline_at_ms IS NOT NULL;
    resolved_ids uuid[] := given_execution_id;
    new_partitions smallint[];
    new_ids uuid[];
    until bigint[];             -- when the delays end; NULL if there are none
    all_new boolean;
    all_claimable boolean := given_delay_ms IS NULL AND given_delay_until_ms IS NULL AND given_held IS NULL;
    any_new_route boolean := false;
    -- New, of one shape, and with nothing but ids and payloads: most submits. See below.
    plain boolean := given_fresh AND given_shape IS NULL AND cardinality(shape_lane_id) = 1
                     AND num_nonnulls(given_priority, given_delay_ms, given_delay_until_ms, given_deadline_ms,
                                      given_deadline_at_ms, given_idempotency_key, given_tags, given_flow_id,
                                      given_held, given_member_name, given_quota_policy_id,
                                      given_quota_dimension) = 0;
    closed_lanes constant text[] := ARRAY(SELECT l.lane_id FROM ff.lane_registry l
                                           WHERE l.lane_id = ANY (shape_lane_id)
                                             AND l.lane_state IN ('draining', 'disabled'));
    closed_lane text;
    refusal text;
    quota_keys bigint[];        -- of the executions that have a limit; NULL if none has
    over boolean[];             -- those that their limit holds back
BEGIN
    IF last_ms < ANY (given_delay_until_ms) OR last_ms - now_ms < ANY (given_delay_ms) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: delay must end before the year 10000';
    END IF;
    IF 0 > ANY (given_delay_ms) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: delay must not be negative';
    END IF;
    IF last_ms < ANY (given_deadline_at_ms) OR last_ms - now_ms < ANY (given_deadline_ms) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: deadline must be before the year 10000';
    END IF;

    IF given_shape IS NULL THEN
        given_shape := array_fill(1, ARRAY[cardinality(given_execution_id)]);
    END IF;
    FOR shape IN 1 .. cardinality(shape_lane_id) LOOP
        routes := routes || ff.route_id(shape_namespace[shape], shape_lane_id[shape],
            shape_execution_kind[shape], string_to_array(shape_required_capabilities[shape], ','));
        any_new_route := any_new_route OR NOT EXISTS (SELECT FROM ff.route WHERE route_id = routes[shape]);
        policy_deadlines[shape] := ff.policy_number(
            shape_policy[shape] #> '{timeout_policy,execution_deadline_ms}', 3153600000000);
        any_instant := any_instant OR policy_deadlines[shape] IS NOT NULL;
        IF jsonb_typeof(shape_policy[shape] -> 'budget_ids') = 'array'
           AND shape_policy[shape] -> 'budget_ids' <> '[]' THEN
            budgets[shape] := ARRAY(SELECT DISTINCT ff.budget_id(b)
                                      FROM jsonb_array_elements_text(shape_policy[shape] -> 'budget_ids') b
                                     WHERE b <> '' ORDER BY 1)::text;
        END IF;
    END LOOP;
    IF any_new_route THEN
        INSERT INTO ff.lane_registry (lane_id, registered_at_ms, registered_by)
        SELECT DISTINCT lane_id, now_ms, 'create_execution' FROM unnest(shape_lane_id) AS lane_id
         ORDER BY lane_id
            ON CONFLICT DO NOTHING;
        INSERT INTO ff.route (route_id, namespace, lane_id, execution_kind, required_capabilities)
        SELECT DISTINCT s.route_id, s.namespace, s.lane_id, s.kind, string_to_array(s.caps, ',')
          FROM unnest(routes, shape_namespace, shape_lane_id, shape_execution_kind,
                      shape_required_capabilities) AS s (route_id, namespace, lane_id, kind, caps)
         ORDER BY s.route_id
            ON CONFLICT DO NOTHING;
    END IF;

    IF given_idempotency_key IS NOT NULL THEN
        -- The first unexpired record of a key decides, also between concurrent callers: the second
        -- caller waits for the first on the unique key, and then conflicts with its record. Keys are
        -- inserted in ascending order, so that batches do not deadlock.
        INSERT INTO ff.exec_idempotency AS existing
               (partition_key, namespace, idempotency_key, execution_id, expires_at_ms, scope)
        SELECT DISTINCT ON (g.partition_key, shape_namespace[g.shape], g.idempotency_key)
               g.partition_key, shape_namespace[g.shape], g.idempotency_key, g.execution_id,
               CASE WHEN g.scope IS NULL THEN now_ms + g.dedup_window_ms ELSE last_ms END,
               coalesce(g.scope, 'window')
          FROM unnest(given_partition_key, given_execution_id, given_shape, given_idempotency_key,
                      given_dedup_window_ms, given_unique_scope) WITH ORDINALITY
               AS g (partition_key, execution_id, shape, idempotency_key, dedup_window_ms, scope, ordinal)
         WHERE g.idempotency_key IS NOT NULL
           AND (given_fresh OR NOT EXISTS (
                    SELECT FROM ff.exec_core e
                     WHERE (e.partition_key, e.execution_id) = (g.partition_key, g.execution_id)))
         ORDER BY g.partition_key, shape_namespace[g.shape], g.idempotency_key, g.ordinal
            ON CONFLICT (partition_key, namespace, idempotency_key) DO UPDATE
               SET execution_id = EXCLUDED.execution_id, expires_at_ms = EXCLUDED.expires_at_ms,
                   scope = EXCLUDED.scope
             WHERE existing.scope = 'window' AND existing.expires_at_ms <= now_ms;
        FOR pass IN 1 .. 2 LOOP
            resolved_ids := ARRAY(
                SELECT coalesce((SELECT k.execution_id FROM ff.exec_idempotency k
                                  WHERE (k.partition_key, k.namespace, k.idempotency_key)
                                      = (g.partition_key, shape_namespace[g.shape], g.idempotency_key)
                                    AND k.expires_at_ms > now_ms),
                                g.execution_id)
                  FROM unnest(given_partition_key, given_execution_id, given_shape, given_idempotency_key)
                       WITH ORDINALITY AS g (partition_key, execution_id, shape, idempotency_key, ordinal)
                 ORDER BY g.ordinal);
            EXIT WHEN pass = 2 OR resolved_ids = given_execution_id;
            -- A unique key whose execution has started, or ended, is free. The insert has locked the record. It
            -- may have waited for the transaction that made the record, and did not see its execution: so the
            -- execution is looked at by a command of its own.
            UPDATE ff.exec_idempotency k
               SET execution_id = g.execution_id, scope = coalesce(g.scope, 'window'),
                   expires_at_ms = CASE WHEN g.scope IS NULL THEN now_ms + g.dedup_window_ms ELSE last_ms END
              FROM (SELECT DISTINCT ON (g.partition_key, shape_namespace[g.shape], g.idempotency_key) g.*,
                           shape_namespace[g.shape] AS namespace
                      FROM unnest(given_partition_key, given_execution_id, given_shape, given_idempotency_key,
                                  given_dedup_window_ms, given_unique_scope) WITH ORDINALITY
                           AS g (partition_key, execution_id, shape, idempotency_key, dedup_window_ms, scope,
                                 ordinal)
                     WHERE g.idempotency_key IS NOT NULL
                       AND (given_fresh OR NOT EXISTS (
                                SELECT FROM ff.exec_core e
                                 WHERE (e.partition_key, e.execution_id) = (g.partition_key, g.execution_id)))
                     ORDER BY g.partition_key, shape_namespace[g.shape], g.idempotency_key, g.ordinal) AS g
             WHERE (k.partition_key, k.namespace, k.idempotency_key)
                 = (g.partition_key, g.namespace, g.idempotency_key)
               AND k.scope <> 'window' AND k.execution_id <> g.execution_id
               AND NOT ff.key_stands(k.partition_key, k.execution_id, k.scope);
            EXIT WHEN NOT FOUND;
        END LOOP;
    END IF;

    IF given_delay_ms IS NOT NULL OR given_delay_until_ms IS NOT NULL THEN
        until := ARRAY(SELECT coalesce(g.delay_until_ms, now_ms + g.delay_ms)
                         FROM unnest(given_delay_until_ms, given_delay_ms) AS g (delay_until_ms, delay_ms));
    END IF;
    IF given_quota_policy_id IS NOT NULL THEN
        SELECT format('limit %s does not exist', g.quota_policy_id) INTO refusal
          FROM (SELECT DISTINCT unnest(given_quota_policy_id) AS quota_policy_id) AS g
         WHERE NOT EXISTS (SELECT FROM ff.quota_policy p WHERE p.quota_policy_id = g.quota_policy_id)
           AND g.quota_policy_id IS NOT NULL
         LIMIT 1;
        IF refusal IS NOT NULL THEN
            RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: ' || refusal;
        END IF;
        quota_keys := ARRAY(
            SELECT CASE WHEN g.policy IS NOT NULL THEN ff.quota_key_id(g.policy, coalesce(g.dimension, '')) END
              FROM unnest(given_quota_policy_id, given_quota_dimension) WITH ORDINALITY
                   AS g (policy, dimension, ordinal)
             ORDER BY g.ordinal);
        over := ARRAY(
            SELECT g.waits AND p.n < row_number() OVER (
                       PARTITION BY g.quota_key_id, g.waits ORDER BY coalesce(g.priority, 0) DESC, g.execution_id)
              FROM (SELECT g.*, g.quota_key_id IS NOT NULL AND g.held IS NOT TRUE
                               AND coalesce(g.until_ms, 0) <= now_ms AND g.resolved_id = g.execution_id AS waits
                      FROM unnest(quota_keys, given_quota_policy_id, given_execution_id, resolved_ids,
                                  given_priority, given_held, until) WITH ORDINALITY
                           AS g (quota_key_id, policy, execution_id, resolved_id, priority, held, until_ms, ordinal)
                   ) AS g
              LEFT JOIN LATERAL (
                   SELECT least(nullif(p.active_concurrency_cap, 0), nullif(p.max_requests_per_window, 0)) AS n
                     FROM ff.quota_policy p WHERE p.quota_policy_id = g.policy LIMIT 1) AS p ON true
             ORDER BY g.ordinal);
        all_claimable := all_claimable AND true <> ALL (over);
    END IF;
    IF plain AND NOT any_instant AND budgets IS NULL THEN
        -- As the next branch. A submit of one execution costs as much as its statements have expressions.
        INSERT INTO ff.exec_core (partition_key, execution_id, route_id, created_at_ms, last_mutation_at_ms,
                                  eligibility_state, blocking_reason)
        SELECT unnest(given_partition_key), unnest(given_execution_id), routes[1], now_ms, now_ms,
               'eligible_now', 'waiting_for_worker';
        INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id)
        SELECT routes[1], now_ms, 0, unnest(given_partition_key), unnest(given_execution_id);
        INSERT INTO ff.exec_body (partition_key, execution_id, created_at_ms, payload, payload_encoding,
                                  creator_identity, policy)
        SELECT unnest(given_partition_key), unnest(given_execution_id), now_ms, unnest(given_payload),
               shape_payload_encoding[1], shape_creator_identity[1], shape_policy[1];
        all_new := true;
    ELSIF given_fresh AND (given_idempotency_key IS NULL OR resolved_ids = given_execution_id) THEN
        -- unnest is in the select list, where its rows are not copied into a temporary store.
        INSERT INTO ff.exec_core (
               partition_key, execution_id, route_id, created_at_ms, last_mutation_at_ms, priority,
               eligibility_state, blocking_reason, delay_until_ms, not_before_ms, deadline_at_ms, tags, flow_id,
               quota_key_id, budget_ids)
        SELECT g.partition_key, g.execution_id, routes[g.shape], now_ms, now_ms,
               greatest(0, least(9000, coalesce(g.priority, 0))),
               CASE WHEN g.held THEN 'blocked_by_dependencies'
                    WHEN g.until_ms > now_ms THEN 'not_eligible_until_time'
                    WHEN g.over THEN 'blocked_by_quota' ELSE 'eligible_now' END,
               CASE WHEN g.held THEN 'waiting_for_children'
                    WHEN g.until_ms > now_ms THEN 'waiting_for_delay'
                    WHEN g.over THEN 'waiting_for_quota' ELSE 'waiting_for_worker' END,
               CASE WHEN g.until_ms > now_ms AND g.held IS NOT TRUE THEN g.until_ms END,
               CASE WHEN g.until_ms > now_ms AND g.held THEN g.until_ms END,
               coalesce(g.deadline_at_ms, now_ms + coalesce(g.deadline_ms, policy_deadlines[g.shape])),
               coalesce(g.tags, '{}'), g.flow_id, g.quota_key_id, budgets[g.shape]::uuid[]
          FROM (SELECT unnest(given_partition_key) AS partition_key,
                       unnest(given_execution_id) AS execution_id, unnest(given_shape) AS shape,
                       unnest(given_priority) AS priority, unnest(given_deadline_ms) AS deadline_ms,
                       unnest(given_deadline_at_ms) AS deadline_at_ms, unnest(given_tags) AS tags,
                       unnest(given_flow_id) AS flow_id, unnest(given_held) AS held,
                       unnest(until) AS until_ms, unnest(quota_keys) AS quota_key_id, unnest(over) AS over) AS g;
        INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms,
                              quota_key_id, queued_by, budget_ids)
        SELECT routes[g.shape], now_ms, greatest(0, least(9000, coalesce(g.priority, 0))), g.partition_key,
               g.execution_id,
               coalesce(g.deadline_at_ms, now_ms + coalesce(g.deadline_ms, policy_deadlines[g.shape])),
               g.quota_key_id, CASE WHEN g.quota_key_id IS NOT NULL THEN pg_current_xact_id() END,
               budgets[g.shape]::uuid[]
          FROM (SELECT unnest(given_partition_key) AS partition_key,
                       unnest(given_execution_id) AS execution_id, unnest(given_shape) AS shape,
                       unnest(given_priority) AS priority, unnest(given_deadline_ms) AS deadline_ms,
                       unnest(given_deadline_at_ms) AS deadline_at_ms, unnest(given_held) AS held,
                       unnest(until) AS until_ms, unnest(quota_keys) AS quota_key_id, unnest(over) AS over) AS g
         WHERE g.held IS NOT TRUE AND coalesce(g.until_ms, 0) <= now_ms AND g.over IS NOT TRUE;
        INSERT INTO ff.exec_body (
               partition_key, execution_id, created_at_ms, payload, payload_encoding,
               creator_identity, idempotency_key, policy, member_name, quota_policy_id, quota_dimension)
        SELECT g.partition_key, g.execution_id, now_ms, g.payload,
               shape_payload_encoding[g.shape], shape_creator_identity[g.shape], g.idempotency_key,
               shape_policy[g.shape], g.member_name, g.quota_policy_id, g.quota_dimension
          FROM (SELECT unnest(given_partition_key) AS partition_key,
                       unnest(given_execution_id) AS execution_id, unnest(given_shape) AS shape,
                       unnest(given_payload) AS payload, unnest(given_idempotency_key) AS idempotency_key,
                       unnest(given_member_name) AS member_name,
                       unnest(given_quota_policy_id) AS quota_policy_id,
                       unnest(given_quota_dimension) AS quota_dimension) AS g;
        all_new := true;
    ELSE
        -- In ascending order of the ids: two calls with the same ids in different orders would otherwise wait
        -- for each other on the primary key.
        WITH created AS (
            INSERT INTO ff.exec_core (
                   partition_key, execution_id, route_id, created_at_ms, last_mutation_at_ms, priority,
                   eligibility_state, blocking_reason, delay_until_ms, not_before_ms, deadline_at_ms, tags, flow_id,
                   quota_key_id, budget_ids)
            SELECT g.partition_key, g.execution_id, routes[g.shape], now_ms, now_ms,
                   greatest(0, least(9000, coalesce(g.priority, 0))),
                   CASE WHEN g.held THEN 'blocked_by_dependencies'
                        WHEN until.ms > now_ms THEN 'not_eligible_until_time'
                        WHEN g.over THEN 'blocked_by_quota' ELSE 'eligible_now' END,
                   CASE WHEN g.held THEN 'waiting_for_children'
                        WHEN until.ms > now_ms THEN 'waiting_for_delay'
                        WHEN g.over THEN 'waiting_for_quota' ELSE 'waiting_for_worker' END,
                   CASE WHEN until.ms > now_ms AND g.held IS NOT TRUE THEN until.ms END,
                   CASE WHEN until.ms > now_ms AND g.held THEN until.ms END,
                   coalesce(g.deadline_at_ms, now_ms + coalesce(g.deadline_ms, policy_deadlines[g.shape])),
                   coalesce(g.tags, '{}'), g.flow_id, g.quota_key_id, budgets[g.shape]::uuid[]
              FROM unnest(given_partition_key, given_execution_id, given_shape, given_priority, given_delay_ms,
                          given_delay_until_ms, given_deadline_ms, given_deadline_at_ms, given_tags, given_flow_id,
                          given_held, resolved_ids, quota_keys, over)
                   AS g (partition_key, execution_id, shape, priority, delay_ms, delay_until_ms, deadline_ms,
                         deadline_at_ms, tags, flow_id, held, resolved_id, quota_key_id, over),
                   LATERAL (SELECT coalesce(g.delay_until_ms, now_ms + g.delay_ms)) AS until (ms)
             WHERE g.resolved_id = g.execution_id
             ORDER BY g.partition_key, g.execution_id
                ON CONFLICT DO NOTHING
            RETURNING route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms, quota_key_id,
                      budget_ids, eligibility_state
        )
        INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms,
                              quota_key_id, queued_by, budget_ids)
        SELECT route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms, quota_key_id,
               CASE WHEN quota_key_id IS NOT NULL THEN pg_current_xact_id() END, budget_ids
          FROM created WHERE eligibility_state = 'eligible_now';

        -- This call created exactly the executions whose body it stores.
        WITH stored AS (
            INSERT INTO ff.exec_body (
                   partition_key, execution_id, created_at_ms, payload, payload_encoding,
                   creator_identity, idempotency_key, policy, member_name, quota_policy_id, quota_dimension)
            SELECT g.partition_key, g.execution_id, now_ms, g.payload,
                   shape_payload_encoding[g.shape], shape_creator_identity[g.shape], g.idempotency_key,
                   shape_policy[g.shape], g.member_name, g.quota_policy_id, g.quota_dimension
              FROM unnest(given_partition_key, given_execution_id, given_shape, given_payload,
                          given_idempotency_key, given_member_name, resolved_ids, given_quota_policy_id,
                          given_quota_dimension)
                   AS g (partition_key, execution_id, shape, payload, idempotency_key, member_name, resolved_id,
                         quota_policy_id, quota_dimension)
             WHERE g.resolved_id = g.execution_id
                ON CONFLICT DO NOTHING
         RETURNING partition_key, execution_id
        )
        SELECT array_agg(partition_key), array_agg(execution_id) INTO new_partitions, new_ids FROM stored;
        all_new := coalesce(cardinality(new_ids), 0) = cardinality(given_execution_id);
        IF NOT all_new AND true = ANY (over) THEN
            -- Those that would be claimable may exist already: a sweep lets the others go if there is room.
            INSERT INTO ff.quota_wakeup (partition_key, quota_key_id)
            SELECT g.partition_key, g.quota_key_id
              FROM unnest(given_partition_key, quota_keys, over) AS g (partition_key, quota_key_id, over)
             WHERE g.over;
        END IF;
    END IF;
    all_claimable := all_new AND all_claimable;

    -- Only new executions are refused: an execution that exists is a duplicate, whatever its lane's state.
    IF cardinality(closed_lanes) > 0 THEN
        SELECT l.lane_id, format('lane ''%s'' is %s', l.lane_id, l.lane_state) INTO closed_lane, refusal
          FROM unnest(given_partition_key, given_execution_id, given_shape)
               AS g (partition_key, execution_id, shape)
          JOIN ff.lane_registry l ON l.lane_id = shape_lane_id[g.shape]
         WHERE l.lane_id = ANY (closed_lanes)
           AND (all_new OR (g.partition_key, g.execution_id) IN (
                    SELECT * FROM unnest(new_partitions, new_ids)))
         ORDER BY l.lane_id LIMIT 1;
        IF refusal IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'FF001', MESSAGE = refusal,
                HINT = format('The lane takes no new executions. Open it with: ff lanes resume %L', closed_lane);
        END IF;
    END IF;

    IF any_instant THEN
        SELECT CASE WHEN g.delay_until_ms < now_ms
                    THEN format('delay_until %s is in the past', ff.iso_instant(g.delay_until_ms))
                    WHEN g.deadline_at_ms IS NULL THEN 'deadline must leave some time'
                    ELSE format('execution_deadline_at %s is in the past', ff.iso_instant(g.deadline_at_ms))
                    END INTO refusal
          FROM unnest(given_partition_key, given_execution_id, given_shape, given_delay_until_ms,
                      given_deadline_ms, given_deadline_at_ms)
               AS g (partition_key, execution_id, shape, delay_until_ms, deadline_ms, deadline_at_ms)
         WHERE (g.delay_until_ms < now_ms OR coalesce(
                    g.deadline_at_ms, now_ms + coalesce(g.deadline_ms, policy_deadlines[g.shape])) <= now_ms)
           AND (all_new OR (g.partition_key, g.execution_id) IN (
                    SELECT * FROM unnest(new_partitions, new_ids)))
         LIMIT 1;
        IF refusal IS NOT NULL THEN
            RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: ' || refusal;
        END IF;
    END IF;

    IF given_tags IS NOT NULL THEN
        INSERT INTO ff.exec_tag (partition_key, execution_id, tag_key, tag_value, created_at_ms)
        SELECT g.partition_key, g.execution_id, t.key, t.value, now_ms
          FROM unnest(given_partition_key, given_execution_id, given_tags)
               AS g (partition_key, execution_id, tags), jsonb_each_text(g.tags) AS t
         WHERE t.key <> 'ff.traceparent'  -- nobody searches by it
           AND (all_new OR (g.partition_key, g.execution_id) IN (SELECT * FROM unnest(new_partitions, new_ids)));
    END IF;

    -- Wake the workers of the lanes that have new claimable executions.
    IF all_claimable AND cardinality(shape_lane_id) = 1 THEN
        PERFORM ff.wake('lane:' || shape_lane_id[1]);
    ELSE
        PERFORM ff.wake('lane:' || lane_id)
           FROM (SELECT DISTINCT shape_lane_id[g.shape] AS lane_id
                   FROM unnest(given_partition_key, given_execution_id, given_shape, given_delay_ms,
                               given_delay_until_ms, given_held)
                        AS g (partition_key, execution_id, shape, delay_ms, delay_until_ms, held)
                  WHERE g.held IS NOT TRUE AND coalesce(g.delay_until_ms, now_ms + g.delay_ms, 0) <= now_ms
                    AND (all_new OR (g.partition_key, g.execution_id) IN (
                             SELECT * FROM unnest(new_partitions, new_ids)))) AS lanes;
    END IF;

    IF all_claimable THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT answer.ordinal, answer.partition_key, answer.resolved_id, answer.created, answer.public_state,
           CASE WHEN answer.resolved_id <> answer.execution_id THEN
               (SELECT array_remove(ARRAY[
                       CASE WHEN r.execution_kind <> shape_execution_kind[answer.shape] THEN 'kind' END,
                       CASE WHEN NOT ff.same_payload(
                                     coalesce(b.submitted_payload, b.payload),
                                     CASE WHEN b.submitted_payload IS NULL THEN b.payload_encoding
                                          ELSE b.submitted_encoding END,
                                     given_payload[answer.ordinal],
                                     shape_payload_encoding[answer.shape]) THEN 'payload' END], NULL)
                  FROM ff.exec_body b JOIN ff.exec_core e USING (partition_key, execution_id)
                  JOIN ff.route r USING (route_id)
                 WHERE (b.partition_key, b.execution_id) = (answer.partition_key, answer.resolved_id)) END
      FROM (SELECT g.ordinal, g.partition_key, g.execution_id, g.shape, g.resolved_id,
                   g.resolved_id = g.execution_id AND (all_new OR (g.partition_key, g.execution_id) IN (
                       SELECT * FROM unnest(new_partitions, new_ids))) IS TRUE AS created,
                   CASE WHEN g.held THEN 'waiting_children'
                        WHEN coalesce(g.delay_until_ms, now_ms + g.delay_ms, 0) > now_ms
                        THEN 'delayed' WHEN g.over THEN 'rate_limited' ELSE 'waiting' END AS public_state
              FROM unnest(given_partition_key, given_execution_id, given_shape, given_delay_ms,
                          given_delay_until_ms, given_held, resolved_ids, over) WITH ORDINALITY
                   AS g (partition_key, execution_id, shape, delay_ms, delay_until_ms, held, resolved_id, over,
                         ordinal)
           ) AS answer
     WHERE NOT answer.created OR answer.public_state <> 'waiting';
END
$function$;

CREATE OR REPLACE FUNCTION ff.delete_executions(old_partitions smallint[], old_ids uuid[])
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
DECLARE
    flow_partitions smallint[];
    flow_ids uuid[];
BEGIN
    WITH old AS (
        SELECT e.partition_key, e.execution_id, e.flow_id
          FROM unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
          JOIN ff.exec_core e USING (partition_key, execution_id)
    ), flow AS (
        SELECT DISTINCT f.partition_key, f.flow_id
          FROM old JOIN ff.flow_core f USING (partition_key, flow_id)
    ), free_flow AS (
        SELECT f.partition_key, f.flow_id
          FROM flow JOIN ff.flow_core f USING (partition_key, flow_id) FOR UPDATE OF f SKIP LOCKED
    ), of_join AS (
        SELECT g.partition_key, g.group_id, old.execution_id
          FROM old JOIN ff.edge_group g
            ON (g.partition_key, g.waiter_eid) = (old.partition_key, old.execution_id)
         WHERE old.flow_id IS NOT NULL
         UNION ALL
        SELECT e.partition_key, e.group_id, old.execution_id
          FROM old JOIN ff.edge e
            ON (e.partition_key, e.upstream_eid) = (old.partition_key, old.execution_id)
         WHERE old.flow_id IS NOT NULL
    ), free_join AS (
        SELECT g.partition_key, g.group_id FROM ff.edge_group g
         WHERE (g.partition_key, g.group_id) IN (SELECT partition_key, group_id FROM of_join)
           FOR UPDATE OF g SKIP LOCKED
    ), in_use AS (
        SELECT old.partition_key, old.execution_id FROM old JOIN flow USING (partition_key, flow_id)
         WHERE (flow.partition_key, flow.flow_id) NOT IN (SELECT partition_key, flow_id FROM free_flow)
         UNION ALL
        SELECT of_join.partition_key, of_join.execution_id
          FROM of_join JOIN ff.edge_group g USING (partition_key, group_id)
         WHERE (g.partition_key, g.group_id) NOT IN (SELECT partition_key, group_id FROM free_join)
    )
    SELECT array_agg(old.partition_key), array_agg(old.execution_id) INTO old_partitions, old_ids
      FROM old
     WHERE (old.partition_key, old.execution_id) NOT IN (SELECT partition_key, execution_id FROM in_use);
    IF old_ids IS NULL THEN
        RETURN 0;
    END IF;

    SELECT array_agg(f.partition_key), array_agg(f.flow_id) INTO flow_partitions, flow_ids
      FROM (SELECT DISTINCT e.partition_key, e.flow_id
              FROM unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
              JOIN ff.exec_core e USING (partition_key, execution_id)
             WHERE e.flow_id IS NOT NULL) AS f;

    DELETE FROM ff.completion_event t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
      JOIN ff.exec_core e USING (partition_key, execution_id)
     WHERE (t.route_id, t.created_at_ms, t.execution_id, t.partition_key)
         = (e.route_id, e.created_at_ms, e.execution_id, e.partition_key);
    DELETE FROM ff.lease_event t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE t.execution_id = old.execution_id AND t.partition_key = old.partition_key;
    DELETE FROM ff.operator_event t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE t.execution_id = old.execution_id AND t.partition_key = old.partition_key;
    DELETE FROM ff.signal_event t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE t.execution_id = old.execution_id AND t.partition_key = old.partition_key;
    DELETE FROM ff.journal t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.signal_inbox t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.suspension_current t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.waitpoint_pending t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE t.execution_id = old.execution_id AND t.partition_key = old.partition_key;
    DELETE FROM ff.suspend_dedup t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.signal_dedup t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE t.execution_id = old.execution_id AND t.partition_key = old.partition_key;
    DELETE FROM ff.quota_admitted t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE t.execution_id = old.execution_id;
    DELETE FROM ff.claim_grant t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    -- What they have spent stays counted.
    DELETE FROM ff.budget_usage_by_exec t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE t.execution_id = old.execution_id AND t.execution_partition = old.partition_key;
    DELETE FROM ff.stream_frame t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.stream_summary t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.stream_meta t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.attempt t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.exec_tag t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.edge t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.upstream_eid) = (old.partition_key, old.execution_id);
    DELETE FROM ff.edge t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
      JOIN ff.edge_group g ON (g.partition_key, g.waiter_eid) = (old.partition_key, old.execution_id)
     WHERE (t.partition_key, t.group_id) = (g.partition_key, g.group_id);
    DELETE FROM ff.edge_group t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.waiter_eid) = (old.partition_key, old.execution_id);
    DELETE FROM ff.cancel_backlog_member t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    -- An idempotency key that belongs to a later execution by now is kept.
    DELETE FROM ff.exec_idempotency t
     USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
      JOIN ff.exec_body b USING (partition_key, execution_id)
      JOIN ff.exec_core e USING (partition_key, execution_id)
      JOIN ff.route r USING (route_id)
     WHERE (t.partition_key, t.namespace, t.idempotency_key) = (old.partition_key, r.namespace, b.idempotency_key)
       AND t.execution_id = old.execution_id;
    DELETE FROM ff.ready t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
      JOIN ff.exec_core e USING (partition_key, execution_id)
     WHERE (t.route_id, t.priority, t.created_at_ms, t.execution_id, t.partition_key)
         = (e.route_id, e.priority, e.created_at_ms, e.execution_id, e.partition_key);
    DELETE FROM ff.lease t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.exec_body t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.exec_core t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);

    -- A flow is deleted with its last member.
    IF flow_ids IS NULL THEN
        RETURN cardinality(old_ids);
    END IF;
    SELECT array_agg(f.partition_key), array_agg(f.flow_id) INTO flow_partitions, flow_ids
      FROM unnest(flow_partitions, flow_ids) AS f (partition_key, flow_id)
     WHERE NOT EXISTS (SELECT FROM ff.exec_core e
                        WHERE (e.partition_key, e.flow_id) = (f.partition_key, f.flow_id));
    DELETE FROM ff.pending_cancel_groups t USING unnest(flow_partitions, flow_ids) AS f (partition_key, flow_id)
     WHERE (t.partition_key, t.flow_id) = (f.partition_key, f.flow_id);
    DELETE FROM ff.cancel_backlog t USING unnest(flow_partitions, flow_ids) AS f (partition_key, flow_id)
     WHERE (t.partition_key, t.flow_id) = (f.partition_key, f.flow_id);
    DELETE FROM ff.flow_summary t USING unnest(flow_partitions, flow_ids) AS f (partition_key, flow_id)
     WHERE (t.partition_key, t.flow_id) = (f.partition_key, f.flow_id);
    DELETE FROM ff.flow_core t USING unnest(flow_partitions, flow_ids) AS f (partition_key, flow_id)
     WHERE (t.partition_key, t.flow_id) = (f.partition_key, f.flow_id);
    RETURN cardinality(old_ids);
END
$function$;

CREATE OR REPLACE FUNCTION ff.emit_operator_event(p_partition_key smallint, p_execution_id uuid, p_flow_id uuid, p_event_type text, p_actor text, p_reason text, p_details jsonb)
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
BEGIN
    -- Readers of the outbox rely on this: a transaction has its transaction id before it has an event id.
    PERFORM pg_current_xact_id();
    INSERT INTO ff.operator_event (
           execution_id, flow_id, route_id, lease_epoch, occurred_at_ms, partition_key, event_type, actor,
           reason, details, tags)
    SELECT p_execution_id, p_flow_id, e.route_id, e.lease_epoch, ff.now_ms(), p_partition_key,
           p_event_type, p_actor, p_reason, p_details, nullif(e.tags, '{}')
      FROM (SELECT) AS one_row
      LEFT JOIN ff.execution e ON (e.partition_key, e.execution_id) = (p_partition_key, p_execution_id);
    PERFORM ff.wake('operator');
END
$function$;

CREATE OR REPLACE FUNCTION ff.flow_digest(p_partition_key smallint, p_flow_id uuid)
 RETURNS bytea
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
BEGIN
    RETURN (SELECT f.graph_digest FROM ff.flow_core f
             WHERE (f.partition_key, f.flow_id) = (p_partition_key, p_flow_id));
END
$function$;

CREATE OR REPLACE FUNCTION ff.flow_failed(p_partition_key smallint, p_flow_id uuid)
 RETURNS boolean
 LANGUAGE sql
 STABLE
AS $function$
    WITH RECURSIVE affected AS (
        SELECT e.execution_id, e.terminal_outcome FROM ff.exec_core e
         WHERE e.partition_key = p_partition_key AND e.flow_id = p_flow_id
           AND e.terminal_outcome IN ('failed', 'cancelled', 'expired')
         UNION
        SELECT w.execution_id, w.terminal_outcome
          FROM affected a
         CROSS JOIN LATERAL (
               SELECT o.group_id FROM ff.edge o
                WHERE (o.partition_key, o.upstream_eid) = (p_partition_key, a.execution_id)
                  AND o.edge_state = 'applied' OFFSET 0) AS o
         CROSS JOIN LATERAL (
               SELECT g.waiter_eid, g.waits_as FROM ff.edge_group g
                WHERE (g.partition_key, g.group_id) = (p_partition_key, o.group_id)
                  AND g.group_state <> 'satisfied' OFFSET 0) AS g
         CROSS JOIN LATERAL (
               SELECT e.execution_id, e.terminal_outcome FROM ff.exec_core e
                WHERE (e.partition_key, e.execution_id) = (p_partition_key, g.waiter_eid)
               OFFSET 0) AS w
         WHERE a.terminal_outcome <> 'success'
           AND NOT (g.waits_as = 'children' AND w.terminal_outcome = 'success')
    )
    SELECT EXISTS (
        SELECT FROM affected a
         WHERE a.terminal_outcome = 'success'  -- it went on although its join was not satisfied
            OR NOT EXISTS (SELECT FROM ff.edge o
                            WHERE (o.partition_key, o.upstream_eid) = (p_partition_key, a.execution_id)
                              AND o.edge_state = 'applied'))
        OR ff.flow_left_skipped(p_partition_key, p_flow_id)
    $function$;

CREATE OR REPLACE FUNCTION ff.flow_left_skipped(p_partition_key smallint, p_flow_id uuid)
 RETURNS boolean
 LANGUAGE sql
 STABLE
AS $function$
    SELECT EXISTS (
        SELECT FROM ff.exec_core m
         WHERE m.partition_key = p_partition_key AND m.flow_id = p_flow_id AND m.terminal_outcome = 'skipped'
           AND (SELECT count(*) > 0 AND bool_and(u.terminal_outcome IS NOT DISTINCT FROM 'success')
                  FROM ff.edge_group g
                  JOIN ff.edge i ON (i.partition_key, i.group_id) = (g.partition_key, g.group_id)
                  LEFT JOIN ff.exec_core u ON (u.partition_key, u.execution_id) = (i.partition_key, i.upstream_eid)
                 WHERE (g.partition_key, g.waiter_eid) = (p_partition_key, m.execution_id)
                   AND g.waits_as = 'member' AND i.edge_state = 'applied')
           AND (SELECT count(*) = 0 OR bool_or(g.group_state <> 'satisfied')
                  FROM ff.edge o
                  JOIN ff.edge_group g ON (g.partition_key, g.group_id) = (o.partition_key, o.group_id)
                 WHERE (o.partition_key, o.upstream_eid) = (p_partition_key, m.execution_id)
                   AND o.edge_state = 'applied'))
    $function$;

CREATE OR REPLACE FUNCTION ff.flow_outcome(p_partition_key smallint, p_flow_id uuid, p_cancelled boolean)
 RETURNS text
 LANGUAGE sql
 STABLE
AS $function$
    SELECT CASE
               WHEN EXISTS (
                   SELECT FROM ff.exec_core e
                    WHERE e.partition_key = p_partition_key AND e.flow_id = p_flow_id
                      AND e.lifecycle_phase <> 'terminal'
                      AND NOT EXISTS (SELECT FROM ff.edge o
                                       WHERE (o.partition_key, o.upstream_eid) = (e.partition_key, e.execution_id)
                                         AND o.edge_state = 'applied'))
               THEN NULL
               WHEN p_cancelled THEN 'cancelled'
               WHEN NOT EXISTS (SELECT FROM ff.exec_core e
                                 WHERE e.partition_key = p_partition_key AND e.flow_id = p_flow_id) THEN NULL
               WHEN ff.flow_failed(p_partition_key, p_flow_id) THEN 'failed'
               ELSE 'completed'
           END
    $function$;

CREATE OR REPLACE FUNCTION ff.flow_status(p_partition_key smallint, p_flow_id uuid, p_cancelled boolean)
 RETURNS TABLE(total integer, completed integer, failed integer, cancelled_members integer, expired integer, skipped integer, active integer, suspended integer, waiting integer, delayed integer, rate_limited integer, waiting_children integer, derived_state text)
 LANGUAGE sql
 STABLE ROWS 1
AS $function$
    WITH members AS (
        SELECT e.execution_id, e.public_state FROM ff.execution e
         WHERE e.partition_key = p_partition_key AND e.flow_id = p_flow_id
    ), counted AS (
        SELECT count(*)::integer AS total,
               (count(*) FILTER (WHERE public_state = 'completed'))::integer AS completed,
               (count(*) FILTER (WHERE public_state = 'failed'))::integer AS failed,
               (count(*) FILTER (WHERE public_state = 'cancelled'))::integer AS cancelled_members,
               (count(*) FILTER (WHERE public_state = 'expired'))::integer AS expired,
               (count(*) FILTER (WHERE public_state = 'skipped'))::integer AS skipped,
               (count(*) FILTER (WHERE public_state = 'active'))::integer AS active,
               (count(*) FILTER (WHERE public_state IN ('suspended', 'resumable')))::integer AS suspended,
               (count(*) FILTER (WHERE public_state = 'waiting'))::integer AS waiting,
               (count(*) FILTER (WHERE public_state = 'delayed'))::integer AS delayed,
               (count(*) FILTER (WHERE public_state = 'rate_limited'))::integer AS rate_limited,
               (count(*) FILTER (WHERE public_state = 'waiting_children'))::integer AS waiting_children
          FROM members
    )
    SELECT counted.*,
           CASE
               WHEN total = 0 THEN CASE WHEN p_cancelled THEN 'cancelled' ELSE 'open' END
               WHEN completed + failed + cancelled_members + expired + skipped = total THEN
                   CASE
                       WHEN p_cancelled THEN 'cancelled'
                       WHEN failed + cancelled_members + expired + skipped = 0 THEN 'completed'
                       WHEN ff.flow_failed(p_partition_key, p_flow_id) THEN 'failed'
                       ELSE 'completed'
                   END
               WHEN active > 0 THEN 'running'
               WHEN suspended + delayed + rate_limited + waiting_children > 0 THEN 'blocked'
               ELSE 'open'
           END
      FROM counted
    $function$;

CREATE OR REPLACE FUNCTION ff.group_decision(policy_kind text, k integer, expected_n integer, succeeded integer, failed integer, skipped integer, running integer)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
AS $function$
    SELECT CASE
               WHEN n < expected_n THEN 'pending'
               WHEN n > 0 AND succeeded >= required THEN 'satisfied'
               WHEN failed + skipped > n - required AND (n >= required OR running = 0) THEN 'impossible'
               ELSE 'pending'
           END
      FROM (SELECT succeeded + failed + skipped + running AS n) AS edges,
           LATERAL (SELECT CASE policy_kind WHEN 'all_of' THEN n WHEN 'any_of' THEN 1 ELSE k END AS required) AS r
    $function$;

CREATE OR REPLACE FUNCTION ff.hold_out_of_budget(p_places tid[], OUT spent uuid[], OUT held text[])
 RETURNS record
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
DECLARE
    details text[];
    dimensions text[];
BEGIN
    SELECT array_agg(s.budget_id ORDER BY s.budget_id), array_agg(s.dimension ORDER BY s.budget_id),
           array_agg(format('budget %s: %s of %s %s used%s', coalesce(nullif(s.scope_id, ''), s.budget_id::text),
                            s.used, s.hard_limit, s.dimension, ', reset at ' || ff.iso_instant(s.next_reset_at_ms))
                     ORDER BY s.budget_id)
      INTO spent, dimensions, details
      FROM ff.spent_budgets(ARRAY(
               SELECT DISTINCT b.id FROM unnest(p_places) AS p (place)
                 JOIN ff.ready r ON r.ctid = p.place, unnest(r.budget_ids) AS b (id))) AS s;
    IF spent IS NULL THEN
        RETURN;
    END IF;
    WITH free AS MATERIALIZED (
        SELECT r.ctid AS place, e.partition_key, e.execution_id
          FROM unnest(p_places) AS p (place)
          JOIN ff.ready r ON r.ctid = p.place
         CROSS JOIN LATERAL (
               SELECT c.partition_key, c.execution_id FROM ff.exec_core c
                WHERE c.partition_key = r.partition_key AND c.execution_id = r.execution_id
                  FOR NO KEY UPDATE SKIP LOCKED) AS e
         WHERE r.budget_ids && spent
    ), leaving AS (
        DELETE FROM ff.ready r USING free WHERE r.ctid = free.place
     RETURNING r.partition_key, r.execution_id, r.budget_ids, r.quota_key_id
    ), told AS MATERIALIZED (
        SELECT leaving.*, why.detail, why.dimension
          FROM leaving CROSS JOIN LATERAL (
               SELECT s.detail, s.dimension
                 FROM unnest(spent, details, dimensions) AS s (budget_id, detail, dimension)
                WHERE s.budget_id = ANY (leaving.budget_ids) LIMIT 1) AS why
    ), blocked AS (
        UPDATE ff.exec_core e
           SET eligibility_state = 'blocked_by_budget', blocking_reason = 'waiting_for_budget',
               blocking_detail = told.detail, last_mutation_at_ms = ff.now_ms()
          FROM told
         WHERE e.partition_key = told.partition_key AND e.execution_id = told.execution_id
    ), place_freed AS (    -- the next one of a limit that held others back can be claimed
        INSERT INTO ff.quota_wakeup (partition_key, quota_key_id)
        SELECT partition_key, quota_key_id FROM leaving WHERE quota_key_id IS NOT NULL
    )
    SELECT array_agg(told.dimension) INTO held FROM told;
END
$function$;

CREATE OR REPLACE FUNCTION ff.iso_instant(at_ms bigint)
 RETURNS text
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN to_char((to_timestamp((((at_ms)::numeric / 1000.0))::double precision) AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'::text);

CREATE OR REPLACE FUNCTION ff.key_partition(namespace text, idempotency_key text, num_flow_partitions integer)
 RETURNS smallint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN ((((('x'::text || encode(substr(sha256(convert_to(concat_ws(''::text, namespace, idempotency_key), 'UTF8'::name)), 1, 4), 'hex'::text)))::bit(32))::bigint % (num_flow_partitions)::bigint))::smallint;

CREATE OR REPLACE FUNCTION ff.key_stands(p_partition_key smallint, p_execution_id uuid, p_scope text)
 RETURNS boolean
 LANGUAGE sql
 STABLE
RETURN (EXISTS (SELECT FROM ff.exec_core e WHERE (((e.partition_key = key_stands.p_partition_key) AND (e.execution_id = key_stands.p_execution_id)) AND ((e.lifecycle_phase)::text <> 'terminal'::text) AND ((key_stands.p_scope = 'ended'::text) OR ((e.started_at_ms IS NULL) AND (NOT (EXISTS (SELECT FROM ff.lease l WHERE ((l.partition_key = key_stands.p_partition_key) AND (l.execution_id = key_stands.p_execution_id))))))))));

CREATE OR REPLACE FUNCTION ff.lock_budgets(given_budget_id uuid[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
DECLARE
    budget record;
BEGIN
    FOR budget IN
        SELECT DISTINCT ff.budget_partition(id) AS partition_key, id FROM unnest(given_budget_id) AS id ORDER BY 1, 2
    LOOP
        PERFORM FROM ff.budget_policy p
          WHERE (p.partition_key, p.budget_id) = (budget.partition_key, budget.id) FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            PERFORM pg_advisory_xact_lock(hashtextextended('flowfabric.budget ' || budget.id, 0));
        END IF;
    END LOOP;
END
$function$;

CREATE OR REPLACE FUNCTION ff.lock_executions(p_partition_keys smallint[], p_execution_ids uuid[], p_pass_over boolean DEFAULT false, p_leases boolean DEFAULT false)
 RETURNS TABLE(partition_key smallint, execution_id uuid)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    partitions smallint[];
    ids uuid[];
    queues bigint[];            -- the routes of those that may be queued, and their place there
    priorities integer[];
    instants bigint[];
    queued_ids uuid[];
    queued_partitions smallint[];
    busy uuid[];
BEGIN
    -- A lock reads its row as it is then. Only an execution that is eligible can be queued.
    IF p_pass_over THEN
        WITH locked AS (
            SELECT e.*
              FROM (SELECT * FROM unnest(p_partition_keys, p_execution_ids) AS named (partition_key, execution_id)
                     ORDER BY partition_key, execution_id) AS named
             CROSS JOIN LATERAL (
                   SELECT c.partition_key, c.execution_id, c.route_id, c.priority, c.created_at_ms,
                          c.eligibility_state = 'eligible_now' AS eligible
                     FROM ff.exec_core c
                    WHERE (c.partition_key, c.execution_id) = (named.partition_key, named.execution_id)
                      FOR NO KEY UPDATE SKIP LOCKED) AS e
        )
        SELECT array_agg(partition_key), array_agg(execution_id),
               array_agg(route_id) FILTER (WHERE eligible), array_agg(priority) FILTER (WHERE eligible),
               array_agg(created_at_ms) FILTER (WHERE eligible), array_agg(execution_id) FILTER (WHERE eligible),
               array_agg(partition_key) FILTER (WHERE eligible)
          INTO partitions, ids, queues, priorities, instants, queued_ids, queued_partitions
          FROM locked;
        IF queues IS NOT NULL THEN
            WITH queued AS (
                SELECT r.ctid AS place, r.partition_key, r.execution_id
                  FROM unnest(queues, priorities, instants, queued_ids, queued_partitions)
                       AS e (route_id, priority, created_at_ms, execution_id, partition_key)
                  JOIN ff.ready r
                    ON r.route_id = ANY (ARRAY[e.route_id])
                   AND (r.priority, r.created_at_ms, r.execution_id, r.partition_key)
                     = (e.priority, e.created_at_ms, e.execution_id, e.partition_key)
            ), locked AS (
                SELECT r.execution_id
                  FROM queued JOIN ff.ready r ON r.ctid = queued.place AND r.partition_key = queued.partition_key
                   FOR UPDATE OF r SKIP LOCKED
            )
            SELECT array_agg(execution_id) INTO busy
              FROM queued WHERE execution_id NOT IN (SELECT execution_id FROM locked);
        END IF;
        RETURN QUERY
        SELECT named.partition_key, named.execution_id
          FROM unnest(partitions, ids) AS named (partition_key, execution_id)
         WHERE busy IS NULL OR named.execution_id <> ALL (busy);
    ELSE
        WITH locked AS (
            SELECT e.*
              FROM (SELECT * FROM unnest(p_partition_keys, p_execution_ids) AS named (partition_key, execution_id)
                     ORDER BY partition_key, execution_id) AS named
             CROSS JOIN LATERAL (
                   SELECT c.partition_key, c.execution_id, c.route_id, c.priority, c.created_at_ms,
                          c.eligibility_state = 'eligible_now' AS eligible
                     FROM ff.exec_core c
                    WHERE (c.partition_key, c.execution_id) = (named.partition_key, named.execution_id)
                      FOR NO KEY UPDATE) AS e
        )
        SELECT array_agg(partition_key), array_agg(execution_id),
               array_agg(route_id) FILTER (WHERE eligible), array_agg(priority) FILTER (WHERE eligible),
               array_agg(created_at_ms) FILTER (WHERE eligible), array_agg(execution_id) FILTER (WHERE eligible),
               array_agg(partition_key) FILTER (WHERE eligible)
          INTO partitions, ids, queues, priorities, instants, queued_ids, queued_partitions
          FROM locked;
        IF queues IS NOT NULL THEN
            PERFORM FROM unnest(queues, priorities, instants, queued_ids, queued_partitions)
                         AS e (route_id, priority, created_at_ms, execution_id, partition_key)
               JOIN ff.ready r
                 ON r.route_id = ANY (ARRAY[e.route_id])
                AND (r.priority, r.created_at_ms, r.execution_id, r.partition_key)
                  = (e.priority, e.created_at_ms, e.execution_id, e.partition_key)
              ORDER BY e.partition_key, e.execution_id FOR UPDATE OF r;
        END IF;
        RETURN QUERY SELECT * FROM unnest(partitions, ids);
        IF p_leases THEN
            PERFORM FROM unnest(p_partition_keys, p_execution_ids) AS named (partition_key, execution_id)
               JOIN ff.lease l
                 ON l.partition_key = ANY (ARRAY[named.partition_key]) AND l.execution_id = named.execution_id
              ORDER BY named.partition_key, named.execution_id FOR NO KEY UPDATE OF l;
        END IF;
    END IF;
END
$function$;

CREATE OR REPLACE FUNCTION ff.lock_quota_keys(p_keys bigint[], p_wait boolean)
 RETURNS TABLE(quota_key_id bigint)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
DECLARE
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
BEGIN
    IF NOT p_wait THEN
        RETURN QUERY
        SELECT locked.quota_key_id
          FROM (SELECT DISTINCT k FROM unnest(p_keys) AS k ORDER BY k) AS key
         CROSS JOIN LATERAL (
               SELECT q.quota_key_id FROM ff.quota_key q
                WHERE q.partition_key = ff.quota_partition(key.k, partitions) AND q.quota_key_id = key.k
                  FOR UPDATE SKIP LOCKED) AS locked;
        RETURN;
    END IF;

    PERFORM ff.note_quota_keys(p_keys);
    RETURN QUERY
    SELECT locked.quota_key_id
      FROM (SELECT DISTINCT k FROM unnest(p_keys) AS k ORDER BY k) AS key
     CROSS JOIN LATERAL (
           SELECT q.quota_key_id FROM ff.quota_key q
            WHERE q.partition_key = ff.quota_partition(key.k, partitions) AND q.quota_key_id = key.k
              FOR UPDATE) AS locked;
END
$function$;

CREATE OR REPLACE FUNCTION ff.max_retries(policy jsonb)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN (jsonb_typeof((policy -> 'retry_policy'::text)) = 'object'::text) THEN COALESCE(ff.policy_number((policy #> '{retry_policy,max_retries}'::text[]), (2147483647)::bigint), (3)::bigint) ELSE (0)::bigint END;

CREATE OR REPLACE FUNCTION ff.merge_patch(document jsonb, patch jsonb)
 RETURNS jsonb
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    merged jsonb := CASE jsonb_typeof(document) WHEN 'object' THEN document ELSE '{}' END;
    field text;
    given jsonb;
BEGIN
    FOR field, given IN SELECT key, value FROM jsonb_each(patch) LOOP
        IF jsonb_typeof(given) = 'null' THEN
            merged := merged - field;
        ELSIF jsonb_typeof(given) = 'object' THEN
            merged := merged || jsonb_build_object(field, ff.merge_patch(merged -> field, given));
        ELSE
            merged := merged || jsonb_build_object(field, given);
        END IF;
    END LOOP;
    RETURN merged;
END
$function$;

CREATE OR REPLACE FUNCTION ff.merge_patches(document jsonb, patches jsonb[], replaces boolean[], OUT merged jsonb, OUT applied jsonb[])
 RETURNS record
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    merged := document;
    applied := patches;
    FOR number IN 1 .. cardinality(patches) LOOP
        IF replaces[number] THEN
            applied[number] := coalesce(
                (SELECT jsonb_object_agg(key, NULL) FROM jsonb_object_keys(merged) AS key), '{}') || patches[number];
        END IF;
        merged := ff.null_leaves(ff.merge_patch(merged, applied[number]));
    END LOOP;
END
$function$;

CREATE OR REPLACE FUNCTION ff.note_quota_keys(p_keys bigint[])
 RETURNS void
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_bitmapscan TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
DECLARE
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    unknown bigint[];
BEGIN
    unknown := ARRAY(
        SELECT DISTINCT k FROM unnest(p_keys) AS k
         WHERE k IS DISTINCT FROM (     -- by primary key, also if the plan is made while the table is empty
                   SELECT q.quota_key_id FROM ff.quota_key q
                    WHERE q.partition_key = ff.quota_partition(k, partitions) AND q.quota_key_id >= k
                    ORDER BY q.quota_key_id LIMIT 1)
         ORDER BY k);
    IF cardinality(unknown) > 0 THEN
        INSERT INTO ff.quota_key (partition_key, quota_key_id, quota_policy_id, dimension)
        SELECT ff.quota_partition(key.k, partitions), key.k, body.quota_policy_id, coalesce(body.quota_dimension, '')
          FROM unnest(unknown) WITH ORDINALITY AS key (k, n)
         CROSS JOIN LATERAL (
               SELECT b.quota_policy_id, b.quota_dimension
                 FROM ((SELECT partition_key, execution_id FROM ff.ready WHERE quota_key_id = key.k LIMIT 1)
                        UNION ALL
                       (SELECT partition_key, execution_id FROM ff.exec_core
                         WHERE quota_key_id = key.k AND exceptional_state = 'blocked_by_quota' LIMIT 1)
                        UNION ALL
                       (SELECT partition_key, execution_id FROM ff.lease WHERE quota_key_id = key.k LIMIT 1)
                      ) AS e
                 JOIN ff.exec_body b USING (partition_key, execution_id)
                LIMIT 1) AS body
         ORDER BY key.n
            ON CONFLICT DO NOTHING;
    END IF;
END
$function$;

CREATE OR REPLACE FUNCTION ff.now_ms()
 RETURNS bigint
 LANGUAGE sql
 STABLE PARALLEL SAFE
RETURN (floor((date_part('epoch'::text, statement_timestamp()) * (1000)::double precision)))::bigint;

CREATE OR REPLACE FUNCTION ff.null_leaves(given jsonb)
 RETURNS jsonb
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF position('__ff_null__' IN given::text) = 0 THEN
        RETURN given;
    END IF;
    RETURN CASE jsonb_typeof(given)
        WHEN 'object' THEN
            (SELECT jsonb_object_agg(key, ff.null_leaves(value)) FROM jsonb_each(given))
        WHEN 'array' THEN
            (SELECT jsonb_agg(ff.null_leaves(value) ORDER BY place)
               FROM jsonb_array_elements(given) WITH ORDINALITY AS element (value, place))
        ELSE CASE given #>> '{}' WHEN '__ff_null__' THEN 'null' ELSE given END
    END;
END
$function$;

CREATE OR REPLACE FUNCTION ff.policy_fault(policy jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    path text;
    found jsonb;
    largest numeric;
BEGIN
    IF policy IS NULL THEN
        RETURN NULL;
    ELSIF jsonb_typeof(policy) <> 'object' THEN
        RETURN 'not an object';
    END IF;
    FOREACH path IN ARRAY ARRAY['retry_policy', 'timeout_policy', 'routing_requirements', 'retry_policy.backoff'] LOOP
        found := policy #> string_to_array(path, '.');
        IF jsonb_typeof(found) NOT IN ('object', 'null') THEN
            RETURN path || ': not an object';
        END IF;
    END LOOP;
    FOREACH path IN ARRAY ARRAY[
        'delay_until', 'dedup_window_ms', 'max_reclaim_count', 'max_replay_count',
        'max_signals_per_execution', 'retry_policy.max_retries',
        'retry_policy.backoff.delay_ms', 'retry_policy.backoff.initial_delay_ms',
        'retry_policy.backoff.max_delay_ms', 'timeout_policy.attempt_timeout_ms',
        'timeout_policy.execution_deadline_ms', 'timeout_policy.max_reclaim_count'] LOOP
        found := policy #> string_to_array(path, '.');
        largest := CASE WHEN path = 'delay_until' THEN 253402300799999
                        WHEN path LIKE '%\_ms' THEN 3153600000000 ELSE 2147483647 END;
        IF jsonb_typeof(found) = 'null' THEN
            CONTINUE;
        ELSIF jsonb_typeof(found) <> 'number'
              OR (found #>> '{}')::numeric NOT BETWEEN 0 AND largest
              OR found #>> '{}' !~ '^[0-9]+$' THEN
            RETURN format('%s: %s is not a whole number up to %s', path, found, largest);
        END IF;
    END LOOP;
    found := policy #> '{retry_policy,backoff,multiplier}';
    IF jsonb_typeof(found) <> 'number' OR (found #>> '{}')::numeric NOT BETWEEN 1 AND 1000 THEN
        RETURN format('retry_policy.backoff.multiplier: %s is not a number from 1 to 1000', found);
    END IF;
    IF jsonb_typeof(policy #> '{retry_policy,backoff,jitter}') <> 'boolean' THEN
        RETURN 'retry_policy.backoff.jitter: not true or false';
    END IF;
    FOREACH path IN ARRAY ARRAY['retry_policy.retryable_categories', 'routing_requirements.required_capabilities', 'budget_ids'] LOOP
        found := policy #> string_to_array(path, '.');
        IF jsonb_typeof(found) <> 'array'
           OR EXISTS (SELECT FROM jsonb_path_query(found, '$[*]') e WHERE jsonb_typeof(e) <> 'string') THEN
            RETURN path || ': not a list of texts';
        END IF;
        IF path = 'budget_ids' AND (jsonb_array_length(found) > 32 OR EXISTS (
               SELECT FROM jsonb_array_elements_text(found) b WHERE octet_length(b) NOT BETWEEN 1 AND 256)) THEN
            RETURN 'budget_ids: more than 32, or one that has not 1 to 256 bytes';
        END IF;
    END LOOP;
    RETURN NULL;
END
$function$;

CREATE OR REPLACE FUNCTION ff.policy_number(found jsonb, largest bigint)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN CASE jsonb_typeof(found) WHEN 'number'::text THEN NULLIF((GREATEST(LEAST((found)::numeric, (largest)::numeric), ('-1'::integer)::numeric))::bigint, '-1'::integer) ELSE NULL::bigint END;

CREATE OR REPLACE FUNCTION ff.quota_key_id(quota_policy_id uuid, dimension text)
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN ((('x'::text || encode(substr(sha256((uuid_send(quota_policy_id) || convert_to(dimension, 'UTF8'::name))), 1, 8), 'hex'::text)))::bit(64))::bigint;

CREATE OR REPLACE FUNCTION ff.quota_partition(quota_key_id bigint, num_flow_partitions integer)
 RETURNS smallint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN ((((quota_key_id % (num_flow_partitions)::bigint) + num_flow_partitions) % (num_flow_partitions)::bigint))::smallint;

CREATE OR REPLACE FUNCTION ff.quota_room(p_keys bigint[], p_now_ms bigint)
 RETURNS TABLE(quota_key_id bigint, room integer, slots integer, starts integer, window_ms bigint, starts_again_at_ms bigint, noted_at_ms bigint)
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_bitmapscan TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
DECLARE
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
BEGIN
    RETURN QUERY
    SELECT key.k, least(counted.slots, counted.starts), counted.slots, counted.starts, policy.window_ms,
           CASE WHEN counted.starts = 0 THEN
               (SELECT w.admitted_at_ms + policy.window_ms FROM ff.quota_window w
                 WHERE w.partition_key = ff.quota_partition(key.k, partitions) AND w.quota_key_id = key.k
                   AND w.admitted_at_ms > p_now_ms - policy.window_ms
                 ORDER BY w.admitted_at_ms LIMIT 1) END,
           q.next_at_ms
      FROM unnest(p_keys) AS key (k)
      JOIN ff.quota_key q ON q.partition_key = ff.quota_partition(key.k, partitions) AND q.quota_key_id = key.k
      LEFT JOIN ff.quota_policy policy ON policy.quota_policy_id = q.quota_policy_id
     CROSS JOIN LATERAL (
           SELECT CASE WHEN policy.active_concurrency_cap > 0 THEN
                      policy.active_concurrency_cap - (
                          SELECT count(*) FROM (SELECT FROM ff.lease l WHERE l.quota_key_id = key.k
                                                 LIMIT policy.active_concurrency_cap) AS held)::integer END AS slots,
                  CASE WHEN policy.max_requests_per_window > 0 THEN
                      policy.max_requests_per_window - (
                          SELECT count(*) FROM (SELECT FROM ff.quota_window w
                                                 WHERE w.partition_key = ff.quota_partition(key.k, partitions)
                                                   AND w.quota_key_id = key.k
                                                   AND w.admitted_at_ms > p_now_ms - policy.window_ms
                                                 LIMIT policy.max_requests_per_window) AS begun)::integer END AS starts
           ) AS counted;
END
$function$;

CREATE OR REPLACE FUNCTION ff.reclaim_cap(policy jsonb)
 RETURNS integer
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN (COALESCE(ff.policy_number((policy -> 'max_reclaim_count'::text), (2147483647)::bigint), ff.policy_number((policy #> '{timeout_policy,max_reclaim_count}'::text[]), (2147483647)::bigint), (5)::bigint))::integer;

CREATE OR REPLACE FUNCTION ff.record_entry(partition_key smallint, execution_id uuid, attempt_index integer, lease_epoch bigint, lease_id uuid, seq integer, name text, item text DEFAULT ''::text, occurrence integer DEFAULT 0, started_at_ms bigint DEFAULT NULL::bigint, fingerprint bigint DEFAULT NULL::bigint, encoding text DEFAULT NULL::text, value bytea DEFAULT NULL::bytea)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    given constant text := format('{fp:%s}:%s', record_entry.partition_key, record_entry.execution_id);
    -- Control characters, invisible ones, and those that change the direction of what follows.
    names_never_have constant text := '[\u0001-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]';
    fault text;
BEGIN
    fault := CASE
        WHEN record_entry.name IS NULL OR octet_length(record_entry.name) NOT BETWEEN 1 AND 128
          OR record_entry.name ~ names_never_have
        THEN format('invalid_input: name %s must be 1 to 128 printable bytes', to_json(left(record_entry.name, 80)))
        WHEN record_entry.item IS NULL OR octet_length(record_entry.item) > 256
        THEN format('invalid_input: item %s must be at most 256 bytes', to_json(left(record_entry.item, 80)))
        WHEN record_entry.seq IS NULL OR record_entry.seq < 1
        THEN format('invalid_input: seq %s must be at least 1', coalesce(record_entry.seq::text, 'NULL'))
        WHEN record_entry.occurrence IS NULL OR record_entry.occurrence < 0
        THEN format('invalid_input: occurrence %s must not be negative',
                    coalesce(record_entry.occurrence::text, 'NULL'))
        WHEN record_entry.fingerprint NOT BETWEEN 0 AND 4294967295
        THEN format('invalid_input: fingerprint %s must be a crc32', record_entry.fingerprint)
        WHEN octet_length(record_entry.value) > 1048576
        THEN format('payload_too_large: value %s bytes is over 1048576', octet_length(record_entry.value))
        END;
    IF fault IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = fault;
    END IF;

    IF current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM FROM ff.lease l
          WHERE (l.partition_key, l.execution_id, l.attempt_index, l.lease_epoch, l.lease_id)
              = (record_entry.partition_key, record_entry.execution_id, record_entry.attempt_index,
                 record_entry.lease_epoch, record_entry.lease_id)
            AND l.lease_expires_at_ms > ff.now_ms()
            FOR KEY SHARE;
    ELSE
        -- A row that changed since the snapshot cannot be locked, and every renewal changes the lease. What ends
        -- a lease changes the execution.
        PERFORM FROM ff.exec_core e JOIN ff.lease l USING (partition_key, execution_id)
          WHERE (e.partition_key, e.execution_id, e.lease_epoch)
              = (record_entry.partition_key, record_entry.execution_id, record_entry.lease_epoch - 1)
            AND (l.attempt_index, l.lease_epoch, l.lease_id)
              = (record_entry.attempt_index, record_entry.lease_epoch, record_entry.lease_id)
            FOR SHARE OF e;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'FF003',
            MESSAGE = format('the lease of execution %s, epoch %s, is not held: %L is not recorded',
                             given, record_entry.lease_epoch, record_entry.name),
            HINT = 'Another worker may hold the execution now. Roll back, and stop working on it.';
    END IF;

    INSERT INTO ff.journal AS j (
           partition_key, seq, execution_id, attempt_index, occurrence, started_at_ms, recorded_at_ms,
           fingerprint, kind, state, name, item, encoding, value)
    VALUES (record_entry.partition_key, record_entry.seq, record_entry.execution_id, record_entry.attempt_index,
            record_entry.occurrence, coalesce(record_entry.started_at_ms, ff.now_ms()), ff.now_ms(),
            CASE WHEN record_entry.fingerprint > 2147483647 THEN record_entry.fingerprint - 4294967296
                 ELSE record_entry.fingerprint END,
            'step', 'done', record_entry.name, record_entry.item, record_entry.encoding, record_entry.value)
        ON CONFLICT (partition_key, execution_id, seq) DO UPDATE
       SET attempt_index = EXCLUDED.attempt_index, recorded_at_ms = EXCLUDED.recorded_at_ms,
           due_at_ms = NULL, state = EXCLUDED.state, encoding = EXCLUDED.encoding, value = EXCLUDED.value
     WHERE j.state = 'open';
    RETURN FOUND;
END
$function$;

CREATE OR REPLACE FUNCTION ff.release_spend(given_budget_id uuid[], given_execution_partition smallint[], given_execution_id uuid[])
 RETURNS TABLE(budget_id uuid, dimension text, released bigint)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    now_ms constant bigint := ff.now_ms();
BEGIN
    PERFORM ff.lock_budgets(given_budget_id);
    -- The lock of the budget keeps its ledger as it is; a statement after it sees all of it.
    PERFORM FROM (SELECT DISTINCT s.partition_key, s.budget_id, s.dimensions_key
                    FROM unnest(given_budget_id, given_execution_partition, given_execution_id)
                         AS g (budget_id, execution_partition, execution_id)
                    JOIN ff.budget_usage_by_exec s
                      ON (s.partition_key, s.budget_id, s.execution_id, s.execution_partition)
                       = (ff.budget_partition(g.budget_id), g.budget_id, g.execution_id, g.execution_partition)
                   ORDER BY 1, 2, 3) AS s
       JOIN ff.budget_usage u USING (partition_key, budget_id, dimensions_key)
        FOR UPDATE OF u;
    RETURN QUERY
    WITH deleted AS (
        DELETE FROM ff.budget_usage_by_exec s
         USING unnest(given_budget_id, given_execution_partition, given_execution_id)
               AS g (budget_id, execution_partition, execution_id)
         WHERE (s.partition_key, s.budget_id, s.execution_id, s.execution_partition)
             = (ff.budget_partition(g.budget_id), g.budget_id, g.execution_id, g.execution_partition)
     RETURNING s.partition_key, s.budget_id, s.dimensions_key, s.delta_total, s.period_no
    ), summed AS (
        SELECT d.partition_key, d.budget_id, d.dimensions_key, sum(d.delta_total)::bigint AS amount
          FROM deleted d
          LEFT JOIN ff.budget_policy p USING (partition_key, budget_id)
         WHERE d.period_no = coalesce(p.period_no, 0)
         GROUP BY d.partition_key, d.budget_id, d.dimensions_key
    )
    UPDATE ff.budget_usage u
       SET current_value = greatest(0, u.current_value - summed.amount), updated_at_ms = now_ms
      FROM summed
     WHERE (u.partition_key, u.budget_id, u.dimensions_key)
         = (summed.partition_key, summed.budget_id, summed.dimensions_key)
    RETURNING u.budget_id, u.dimensions_key, summed.amount;
END
$function$;

CREATE OR REPLACE FUNCTION ff.replay_cap(policy jsonb)
 RETURNS integer
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN (COALESCE(ff.policy_number((policy -> 'max_replay_count'::text), (2147483647)::bigint), (10)::bigint))::integer;

CREATE OR REPLACE FUNCTION ff.report_usage(given_budget_id uuid[], given_deltas jsonb[], given_dedup_key text[], given_execution_partition smallint[] DEFAULT NULL::smallint[], given_execution_id uuid[] DEFAULT NULL::uuid[], given_now_ms bigint DEFAULT NULL::bigint)
 RETURNS TABLE(ordinal integer, outcome text, dimension text, current_usage bigint, limit_value bigint)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    now_ms constant bigint := coalesce(given_now_ms, ff.now_ms());
    kept_ms constant bigint := 86400000;
    spends constant boolean := given_execution_id IS NOT NULL;
    partitions smallint[] := ARRAY(SELECT ff.budget_partition(b.id)
                                     FROM unnest(given_budget_id) WITH ORDINALITY AS b (id, n) ORDER BY b.n);
    taken text[] := '{}';        -- keys that this call counts, not used yet
    place text;
    policy ff.budget_policy;
    breach record;
    stored jsonb;
    found_one boolean;
BEGIN
    IF EXISTS (SELECT FROM unnest(given_dedup_key) AS k WHERE k <> '') THEN
        WITH placed AS (
            INSERT INTO ff.budget_usage_dedup AS d (partition_key, budget_id, dedup_key, applied_at_ms, expires_at_ms)
            SELECT DISTINCT g.partition_key, g.budget_id, g.dedup_key, now_ms, now_ms + kept_ms
              FROM unnest(partitions, given_budget_id, given_dedup_key) AS g (partition_key, budget_id, dedup_key)
             WHERE g.dedup_key <> ''
             ORDER BY 1, 2, 3
                ON CONFLICT (partition_key, budget_id, dedup_key) DO UPDATE
               SET outcome_json = NULL, applied_at_ms = EXCLUDED.applied_at_ms,
                   expires_at_ms = EXCLUDED.expires_at_ms
             WHERE d.expires_at_ms <= now_ms
         RETURNING d.budget_id, d.dedup_key
        )
        SELECT coalesce(array_agg(placed.budget_id || ' ' || placed.dedup_key), '{}') INTO taken FROM placed;
    END IF;

    PERFORM ff.lock_budgets(given_budget_id);

    INSERT INTO ff.budget_usage (partition_key, budget_id, dimensions_key, current_value, updated_at_ms)
    SELECT DISTINCT g.partition_key, g.budget_id, d.name COLLATE "C", 0, now_ms
      FROM unnest(partitions, given_budget_id, given_deltas) AS g (partition_key, budget_id, deltas),
           jsonb_object_keys(g.deltas) AS d (name)
     ORDER BY 1, 2, 3
        ON CONFLICT DO NOTHING;
    PERFORM FROM (SELECT DISTINCT g.partition_key, g.budget_id, d.name COLLATE "C" AS name
                    FROM unnest(partitions, given_budget_id, given_deltas) AS g (partition_key, budget_id, deltas),
                         jsonb_object_keys(g.deltas) AS d (name)
                   ORDER BY 1, 2, 3) AS g
       JOIN ff.budget_usage u
         ON (u.partition_key, u.budget_id, u.dimensions_key) = (g.partition_key, g.budget_id, g.name)
        FOR UPDATE OF u;

    FOR i IN 1 .. cardinality(given_budget_id) LOOP
        ordinal := i;
        dimension := NULL;
        current_usage := NULL;
        limit_value := NULL;
        place := NULL;
        IF given_dedup_key[i] <> '' THEN
            place := given_budget_id[i] || ' ' || given_dedup_key[i];
            IF place = ANY (taken) THEN
                taken := array_remove(taken, place);
            ELSE
                SELECT d.outcome_json, true INTO stored, found_one FROM ff.budget_usage_dedup d
                 WHERE (d.partition_key, d.budget_id, d.dedup_key)
                     = (partitions[i], given_budget_id[i], given_dedup_key[i]);
                IF found_one THEN
                    outcome := 'already_applied';
                    IF stored ? 'SoftBreach' AND NOT spends THEN
                        outcome := 'soft_breach';
                        dimension := stored #>> '{SoftBreach,dimension}';
                        current_usage := (stored #>> '{SoftBreach,current_usage}')::bigint;
                        limit_value := (stored #>> '{SoftBreach,soft_limit}')::bigint;
                    END IF;
                    RETURN NEXT;
                    CONTINUE;
                END IF;
                -- An earlier report of this call had the key, and was refused.
                INSERT INTO ff.budget_usage_dedup (partition_key, budget_id, dedup_key, applied_at_ms, expires_at_ms)
                VALUES (partitions[i], given_budget_id[i], given_dedup_key[i], now_ms, now_ms + kept_ms);
            END IF;
        END IF;

        SELECT p.* INTO policy FROM ff.budget_policy p
         WHERE (p.partition_key, p.budget_id) = (partitions[i], given_budget_id[i]);

        -- The first dimension that would be over its hard limit.
        SELECT u.dimensions_key, u.current_value, d.delta, l.hard INTO breach
          FROM jsonb_each(given_deltas[i]) AS g (name, value)
         CROSS JOIN LATERAL (SELECT (g.value #>> '{}')::bigint) AS d (delta)
          JOIN ff.budget_usage u
            ON (u.partition_key, u.budget_id, u.dimensions_key) = (partitions[i], given_budget_id[i], g.name)
         CROSS JOIN LATERAL (SELECT (policy.policy_json #>> ARRAY['hard_limits', g.name])::bigint) AS l (hard)
         WHERE l.hard > 0 AND u.current_value::numeric + d.delta > l.hard
         ORDER BY u.dimensions_key COLLATE "C" LIMIT 1;
        IF breach.dimensions_key IS NOT NULL THEN
            UPDATE ff.budget_policy p
               SET breach_count = p.breach_count + 1, last_breach_at_ms = now_ms,
                   last_breach_dim = breach.dimensions_key, updated_at_ms = now_ms
             WHERE (p.partition_key, p.budget_id) = (partitions[i], given_budget_id[i]);
            dimension := breach.dimensions_key;
            limit_value := breach.hard;
            IF policy.enforcement_mode = 'strict' THEN
                IF place IS NOT NULL THEN
                    DELETE FROM ff.budget_usage_dedup d
                     WHERE (d.partition_key, d.budget_id, d.dedup_key)
                         = (partitions[i], given_budget_id[i], given_dedup_key[i]);
                END IF;
                outcome := 'hard_breach';
                current_usage := breach.current_value;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        SELECT u.dimensions_key INTO place
          FROM jsonb_each_text(given_deltas[i]) AS g (name, delta)
          JOIN ff.budget_usage u
            ON (u.partition_key, u.budget_id, u.dimensions_key) = (partitions[i], given_budget_id[i], g.name)
         WHERE u.current_value::numeric + g.delta::bigint > 9223372036854775807 LIMIT 1;
        IF place IS NOT NULL THEN
            RAISE invalid_parameter_value USING MESSAGE = format(
                'invalid_input: the usage of dimension %s of budget %s cannot be over 2^63-1', to_json(place),
                given_budget_id[i]);
        END IF;
        UPDATE ff.budget_usage u
           SET current_value = u.current_value + g.delta::bigint, updated_at_ms = ff.now_ms()
          FROM jsonb_each_text(given_deltas[i]) AS g (name, delta)
         WHERE (u.partition_key, u.budget_id, u.dimensions_key) = (partitions[i], given_budget_id[i], g.name);
        IF spends THEN
            INSERT INTO ff.budget_usage_by_exec AS s (
                   partition_key, budget_id, execution_partition, execution_id, dimensions_key, delta_total,
                   period_no, updated_at_ms)
            SELECT partitions[i], given_budget_id[i], given_execution_partition[i], given_execution_id[i], g.name,
                   g.delta::bigint, coalesce(policy.period_no, 0), now_ms
              FROM jsonb_each_text(given_deltas[i]) AS g (name, delta)
             ORDER BY g.name COLLATE "C"
                ON CONFLICT (partition_key, budget_id, execution_id, execution_partition, dimensions_key) DO UPDATE
               SET delta_total = EXCLUDED.delta_total
                                 + CASE WHEN s.period_no = EXCLUDED.period_no THEN s.delta_total ELSE 0 END,
                   period_no = EXCLUDED.period_no, updated_at_ms = EXCLUDED.updated_at_ms, unsettled = true;
        END IF;

        outcome := 'ok';
        IF breach.dimensions_key IS NOT NULL THEN
            outcome := 'soft_breach';
            current_usage := breach.current_value + breach.delta;
        ELSE
            SELECT u.dimensions_key, u.current_value, l.soft INTO dimension, current_usage, limit_value
              FROM jsonb_object_keys(given_deltas[i]) AS g (name)
              JOIN ff.budget_usage u
                ON (u.partition_key, u.budget_id, u.dimensions_key) = (partitions[i], given_budget_id[i], g.name)
             CROSS JOIN LATERAL (SELECT (policy.policy_json #>> ARRAY['soft_limits', g.name])::bigint) AS l (soft)
             WHERE l.soft > 0 AND u.current_value > l.soft
             ORDER BY u.dimensions_key COLLATE "C" LIMIT 1;
            IF dimension IS NOT NULL THEN
                outcome := 'soft_breach';
                UPDATE ff.budget_policy p
                   SET soft_breach_count = p.soft_breach_count + 1, updated_at_ms = now_ms
                 WHERE (p.partition_key, p.budget_id) = (partitions[i], given_budget_id[i]);
            END IF;
        END IF;
        IF given_dedup_key[i] <> '' THEN
            UPDATE ff.budget_usage_dedup d
               SET outcome_json = CASE outcome
                       WHEN 'soft_breach' THEN jsonb_build_object('SoftBreach', jsonb_build_object(
                           'dimension', dimension, 'current_usage', current_usage, 'soft_limit', limit_value))
                       ELSE '"Ok"' END
             WHERE (d.partition_key, d.budget_id, d.dedup_key)
                 = (partitions[i], given_budget_id[i], given_dedup_key[i]);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$function$;

CREATE OR REPLACE FUNCTION ff.reserved(p_partition_key smallint, p_execution_id uuid, p_worker_id text)
 RETURNS boolean
 LANGUAGE sql
 STABLE
RETURN (EXISTS (SELECT FROM (ff.claim_grant g JOIN ff.exec_core e USING (partition_key, execution_id)) WHERE (((g.partition_key = reserved.p_partition_key) AND (g.execution_id = reserved.p_execution_id)) AND (g.kind = 'claim'::text) AND (g.expires_at_ms > ff.now_ms()) AND (g.lease_epoch >= e.lease_epoch) AND (g.worker_id <> reserved.p_worker_id))));

CREATE OR REPLACE FUNCTION ff.reset_budgets(given_budget_id uuid[], only_due boolean DEFAULT false, given_now_ms bigint DEFAULT NULL::bigint)
 RETURNS TABLE(budget_id uuid, next_reset_at_ms bigint, period_no bigint)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
AS $function$
#variable_conflict use_column
DECLARE
    now_ms constant bigint := coalesce(given_now_ms, ff.now_ms());
    reset_ids uuid[];
BEGIN
    PERFORM ff.lock_budgets(given_budget_id);
    WITH reset AS (
        UPDATE ff.budget_policy p
           SET last_breach_at_ms = NULL, last_breach_dim = NULL, last_reset_at_ms = now_ms,
               next_reset_at_ms = now_ms + nullif((p.policy_json ->> 'reset_interval_ms')::bigint, 0),
               reset_count = p.reset_count + 1, period_no = p.period_no + 1, updated_at_ms = now_ms
          FROM (SELECT DISTINCT ff.budget_partition(id), id FROM unnest(given_budget_id) AS id)
               AS g (partition_key, budget_id)
         WHERE (p.partition_key, p.budget_id) = (g.partition_key, g.budget_id)
           AND (NOT only_due OR p.next_reset_at_ms <= now_ms)
     RETURNING p.budget_id
    )
    SELECT array_agg(reset.budget_id) INTO reset_ids FROM reset;
    PERFORM FROM (SELECT ff.budget_partition(id), id FROM unnest(reset_ids) AS id ORDER BY 1, 2)
                 AS g (partition_key, budget_id)
       JOIN ff.budget_usage u USING (partition_key, budget_id)
      ORDER BY u.partition_key, u.budget_id, u.dimensions_key
        FOR UPDATE OF u;
    UPDATE ff.budget_usage u
       SET current_value = 0, last_reset_at_ms = now_ms, updated_at_ms = ff.now_ms()
      FROM (SELECT ff.budget_partition(id), id FROM unnest(reset_ids) AS id) AS g (partition_key, budget_id)
     WHERE (u.partition_key, u.budget_id) = (g.partition_key, g.budget_id);
    RETURN QUERY
    SELECT p.budget_id, p.next_reset_at_ms, p.period_no
      FROM unnest(reset_ids) AS g (id)
      JOIN ff.budget_policy p ON (p.partition_key, p.budget_id) = (ff.budget_partition(g.id), g.id);
END
$function$;

CREATE OR REPLACE FUNCTION ff.retries_left(policy jsonb, retry_count integer)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN (retry_count < ff.max_retries(policy));

CREATE OR REPLACE FUNCTION ff.retry_allowed(policy jsonb, retry_count integer, failure_class text, failure_category text)
 RETURNS boolean
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN ((failure_class = ANY (ARRAY['transient'::text, 'infra_crash'::text])) AND ff.retries_left(policy, retry_count) AND ((jsonb_typeof((policy #> '{retry_policy,retryable_categories}'::text[])) IS DISTINCT FROM 'array'::text) OR ((policy #> '{retry_policy,retryable_categories}'::text[]) = '[]'::jsonb) OR ((policy #> '{retry_policy,retryable_categories}'::text[]) ? failure_category)));

CREATE OR REPLACE FUNCTION ff.retry_delay_ms(policy jsonb, retry_count integer, execution_id uuid)
 RETURNS bigint
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    backoff constant jsonb := policy #> '{retry_policy,backoff}';
    multiplier float8 := 2;
    ms float8 := 1000;
BEGIN
    IF backoff IS NULL THEN
        RETURN least(1000 * power(2.0::float8, least(retry_count, 64)), 60000);
    END IF;
    IF backoff ->> 'type' = 'fixed' THEN
        ms := coalesce(ff.policy_number(backoff -> 'delay_ms', 3153600000000), 1000);
    ELSIF backoff ->> 'type' = 'exponential' THEN
        IF jsonb_typeof(backoff -> 'multiplier') = 'number' THEN
            multiplier := greatest(1, least(1000, (backoff -> 'multiplier')::numeric));
        END IF;
        ms := least(coalesce(ff.policy_number(backoff -> 'initial_delay_ms', 3153600000000), 1000)
                        * power(multiplier, least(retry_count, 64)),
                    coalesce(ff.policy_number(backoff -> 'max_delay_ms', 3153600000000), 60000));
    END IF;
    IF backoff -> 'jitter' = 'true' THEN
        ms := ms / 2 + ms / 2 * (hashtextextended(execution_id::text, retry_count) & 65535) / 65535.0;
    END IF;
    RETURN trunc(ms);
END
$function$;

CREATE OR REPLACE FUNCTION ff.route_id(namespace text, lane_id text, execution_kind text, required_capabilities text[])
 RETURNS bigint
 LANGUAGE sql
 IMMUTABLE PARALLEL SAFE
RETURN ((('x'::text || encode(substr(sha256(convert_to(concat_ws(''::text, octet_length(namespace), namespace, lane_id, octet_length(execution_kind), execution_kind, array_to_string(required_capabilities, ','::text)), 'UTF8'::name)), 1, 8), 'hex'::text)))::bit(64))::bigint;

CREATE OR REPLACE FUNCTION ff.same_payload(stored bytea, stored_encoding text, given bytea, given_encoding text)
 RETURNS boolean
 LANGUAGE plpgsql
 STABLE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
BEGIN
    IF stored = given THEN
        RETURN true;
    ELSIF (stored_encoding = 'json' AND given_encoding = 'json') IS NOT TRUE THEN
        RETURN false;
    END IF;
    BEGIN
        RETURN convert_from(stored, 'UTF8')::jsonb = convert_from(given, 'UTF8')::jsonb;
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        RETURN false;  -- not JSON that Postgres reads
    END;
END
$function$;

CREATE OR REPLACE FUNCTION ff.spent_budgets(given_budget_id uuid[])
 RETURNS TABLE(budget_id uuid, scope_id text, dimension text, used bigint, hard_limit bigint, next_reset_at_ms bigint)
 LANGUAGE plpgsql
 STABLE ROWS 1
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT DISTINCT ON (p.budget_id) p.budget_id, p.scope_id, u.dimensions_key, u.current_value, l.hard,
           p.next_reset_at_ms
      FROM (SELECT DISTINCT id FROM unnest(given_budget_id) AS id) AS g
      JOIN ff.budget_policy p ON (p.partition_key, p.budget_id) = (ff.budget_partition(g.id), g.id)
     CROSS JOIN LATERAL jsonb_each_text(p.policy_json -> 'hard_limits') AS h (name, value)
     CROSS JOIN LATERAL (SELECT h.value::bigint) AS l (hard)
      JOIN ff.budget_usage u
        ON (u.partition_key, u.budget_id, u.dimensions_key) = (p.partition_key, p.budget_id, h.name)
     WHERE p.enforcement_mode = 'strict' AND l.hard > 0 AND u.current_value >= l.hard
     ORDER BY p.budget_id, u.dimensions_key COLLATE "C";
END
$function$;

CREATE OR REPLACE FUNCTION ff.submit(kind text, payload jsonb DEFAULT '{}'::jsonb, lane text DEFAULT 'default'::text, namespace text DEFAULT 'default'::text, priority integer DEFAULT 0, delay interval DEFAULT NULL::interval, deadline interval DEFAULT NULL::interval, idempotency_key text DEFAULT NULL::text, tags jsonb DEFAULT NULL::jsonb, requires text[] DEFAULT '{}'::text[], policy jsonb DEFAULT NULL::jsonb, on_conflict text DEFAULT 'error'::text, idempotency_window interval DEFAULT NULL::interval, limit_name text DEFAULT NULL::text, limit_key text DEFAULT NULL::text)
 RETURNS text
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
DECLARE
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    new_id constant uuid := gen_random_uuid();
    limit_id constant uuid := (SELECT p.quota_policy_id FROM ff.quota_policy p
                                WHERE p.namespace = submit.namespace AND p.name = limit_name);
    new_partition constant smallint := CASE WHEN idempotency_key IS NOT NULL
        THEN ff.key_partition(namespace, idempotency_key, partitions)
        WHEN limit_id IS NOT NULL
        THEN ff.quota_partition(ff.quota_key_id(limit_id, coalesce(limit_key, '')), partitions)
        ELSE (get_byte(uuid_send(new_id), 15) % partitions)::smallint END;
    capabilities text[];
    fault text := ff.policy_fault(policy);
    -- Control characters, invisible ones, and those that change the direction of what follows.
    names_never_have constant text := '[\u0001-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]';
    answer record;
    found_id text;
BEGIN
    IF kind IS NULL OR kind = '' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: kind must not be empty';
    END IF;
    IF octet_length(kind) > 256 OR kind ~ names_never_have THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: kind %s must be at most 256 printable bytes', to_json(left(kind, 64)));
    END IF;
    IF octet_length(namespace) NOT BETWEEN 1 AND 256 OR namespace ~ names_never_have THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: namespace %s must be 1 to 256 printable bytes', to_json(left(namespace, 64)));
    END IF;
    IF octet_length(idempotency_key) NOT BETWEEN 1 AND 1024 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: idempotency_key must have 1 to 1024 bytes';
    END IF;
    IF limit_name IS NOT NULL AND limit_id IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: limit_name %s does not exist', to_json(left(limit_name, 64)));
    END IF;
    IF limit_key IS NOT NULL AND limit_name IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: limit_key needs a limit_name';
    END IF;
    IF octet_length(limit_key) NOT BETWEEN 1 AND 1024 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: limit_key must have 1 to 1024 bytes';
    END IF;
    IF on_conflict IS NULL OR on_conflict NOT IN ('error', 'return') THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: on_conflict %L must be error or return', on_conflict);
    END IF;
    IF idempotency_window IS NOT NULL AND idempotency_key IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: idempotency_window needs an idempotency_key';
    END IF;
    IF extract(epoch FROM idempotency_window) NOT BETWEEN 0.001 AND 3153600000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: idempotency_window %s must be positive and within a century', idempotency_window);
    END IF;
    IF octet_length(lane) NOT BETWEEN 1 AND 64 OR lane !~ '^[ -~]+$' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: lane %L must be 1 to 64 printable ASCII bytes', lane);
    END IF;
    IF (extract(epoch FROM deadline) * 1000)::bigint < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: deadline %L must be positive', deadline);
    END IF;
    IF fault IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_policy_json: %s', fault);
    END IF;
    IF abs(extract(epoch FROM delay)) > 3153600000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: delay %s must be within a century', delay);
    END IF;
    IF abs(extract(epoch FROM deadline)) > 3153600000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: deadline %s must be within a century', deadline);
    END IF;
    IF jsonb_typeof(tags) <> 'object'
       OR EXISTS (SELECT FROM jsonb_each(tags) t WHERE jsonb_typeof(t.value) <> 'string') THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: tags must map keys to text';
    END IF;
    fault := ff.tags_fault(tags);
    IF fault IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: %s', fault);
    END IF;
    IF EXISTS (SELECT FROM jsonb_each_text(tags) t WHERE octet_length(t.value) > 1024) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: the value of a tag must be at most 1024 bytes';
    END IF;
    capabilities := ARRAY(
        SELECT DISTINCT c COLLATE "C" FROM unnest(requires || ARRAY(SELECT jsonb_array_elements_text(
            policy #> '{routing_requirements,required_capabilities}'))) c ORDER BY 1);
    IF cardinality(capabilities) > 256 OR octet_length(array_to_string(capabilities, ',')) > 4096
       OR EXISTS (SELECT FROM unnest(capabilities) c WHERE c IS NULL OR c = '' OR c ~ '[\x01-\x20\x7f,]') THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_capabilities: required: %s', left(requires::text, 200));
    END IF;
    -- session_user has collation "C". An argument with that collation would make the called function
    -- compare every text in "C", and none of our indexes has that collation.
    SELECT * INTO answer FROM ff.create_execution(
        ARRAY[namespace], ARRAY[lane], ARRAY[kind], ARRAY[array_to_string(capabilities, ',')],
        ARRAY['json'], ARRAY['sql:' || session_user COLLATE "default"], ARRAY[policy],
        ARRAY[new_partition],
        ARRAY[new_id], NULL, ARRAY[convert_to(payload::text, 'UTF8')], ARRAY[priority],
        CASE WHEN delay IS NOT NULL THEN ARRAY[(extract(epoch FROM delay) * 1000)::bigint] END,
        CASE WHEN delay IS NULL AND policy ->> 'delay_until' IS NOT NULL
             THEN ARRAY[(policy ->> 'delay_until')::bigint] END,
        CASE WHEN deadline IS NOT NULL THEN ARRAY[(extract(epoch FROM deadline) * 1000)::bigint] END, NULL,
        CASE WHEN idempotency_key IS NOT NULL THEN ARRAY[idempotency_key] END,
        ARRAY[coalesce((extract(epoch FROM idempotency_window) * 1000)::bigint,
                       (policy ->> 'dedup_window_ms')::bigint, 86400000)],
        CASE WHEN tags IS NOT NULL THEN ARRAY[tags] END, given_fresh => true,
        given_quota_policy_id => CASE WHEN limit_id IS NOT NULL THEN ARRAY[limit_id] END,
        given_quota_dimension => CASE WHEN limit_key IS NOT NULL THEN ARRAY[limit_key] END);
    found_id := format('{fp:%s}:%s', new_partition, coalesce(answer.execution_id, new_id));
    IF cardinality(answer.differs) > 0 AND on_conflict = 'error' THEN
        RAISE EXCEPTION USING ERRCODE = 'FF002',
            MESSAGE = format('idempotency_key %L belongs to execution %s, which was submitted with another %s',
                             idempotency_key, found_id, array_to_string(answer.differs, ' and another ')),
            HINT = 'Use another key, or on_conflict => ''return'' to get that execution.';
    END IF;
    RETURN found_id;
END
$function$;

CREATE OR REPLACE FUNCTION ff.tags_fault(tags jsonb)
 RETURNS text
 LANGUAGE plpgsql
 IMMUTABLE PARALLEL SAFE
 SET search_path TO 'pg_catalog', 'pg_temp'
AS $function$
DECLARE
    number bigint;
    size bigint;
BEGIN
    IF jsonb_typeof(tags) <> 'object' THEN
        RETURN NULL;
    END IF;
    SELECT count(*), sum(octet_length(t.key) + octet_length(t.value)) INTO number, size
      FROM jsonb_each_text(tags) AS t;
    RETURN CASE WHEN number > 64 THEN format('tags are %s, and must be at most 64', number)
                WHEN size > 16384 THEN format('tags have %s bytes, and must have at most 16384', size) END;
END
$function$;

CREATE OR REPLACE FUNCTION ff.try_lock_budgets(given_budget_id uuid[])
 RETURNS TABLE(budget_id uuid)
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET lock_timeout TO '100ms'
AS $function$
#variable_conflict use_column
DECLARE
    budget record;
    waits boolean := true;
BEGIN
    FOR budget IN
        SELECT DISTINCT ff.budget_partition(id) AS partition_key, id FROM unnest(given_budget_id) AS id ORDER BY 1, 2
    LOOP
        budget_id := budget.id;
        PERFORM FROM ff.budget_policy p
          WHERE (p.partition_key, p.budget_id) = (budget.partition_key, budget.id) FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN NEXT;
        ELSIF waits THEN
            BEGIN
                PERFORM ff.lock_budgets(ARRAY[budget.id]);
                RETURN NEXT;
            EXCEPTION WHEN lock_not_available THEN
                waits := false;
            END;
        END IF;
    END LOOP;
END
$function$;

CREATE OR REPLACE FUNCTION ff.unblock_quota_keys(p_keys bigint[], p_wait boolean DEFAULT true)
 RETURNS integer
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET enable_bitmapscan TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
#variable_conflict use_column
DECLARE
    at_most constant integer := 500;    -- of one key at a time; the rest is noted as due at once
    now_ms constant bigint := ff.now_ms();
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    locked bigint[];
    keys bigint[];
    most integer[];             -- how many of each key may be claimable, of each route
    again bigint[];             -- when a start leaves the window, if the rate is used up
    noted bigint[];             -- what is noted of that
    route_keys bigint[]; routes bigint[]; route_most integer[];     -- of the keys that have room
    free integer[];             -- how many more of each of them may be claimable
    passed_over bigint[];       -- keys of which more can be let go, at once
    freed_lanes text[];
    moved integer;
BEGIN
    IF NOT p_wait THEN
        PERFORM ff.note_quota_keys(p_keys);
    END IF;
    locked := ARRAY(SELECT quota_key_id FROM ff.lock_quota_keys(p_keys, p_wait));
    IF cardinality(locked) = 0 THEN
        RETURN 0;
    END IF;
    SELECT array_agg(r.quota_key_id), array_agg(least(at_most, r.room)), array_agg(r.starts_again_at_ms),
           array_agg(r.noted_at_ms)
      INTO keys, most, again, noted
      FROM ff.quota_room(ARRAY(SELECT k FROM unnest(locked) AS k   -- those that hold something back
                                WHERE EXISTS (SELECT FROM ff.exec_core c
                                               WHERE c.quota_key_id = k
                                                 AND c.exceptional_state = 'blocked_by_quota' OFFSET 0)),
                         now_ms) AS r;
    UPDATE ff.quota_key q SET next_at_ms = NULL
      FROM unnest(locked) AS key (k)
     WHERE q.partition_key = ff.quota_partition(key.k, partitions) AND q.quota_key_id = key.k
       AND q.next_at_ms IS NOT NULL AND key.k NOT IN (SELECT unnest(keys));
    IF keys IS NULL THEN
        RETURN 0;
    END IF;

    WITH RECURSIVE held_route (k, most, route_id) AS (
        SELECT key.k, key.most, (SELECT c.route_id FROM ff.exec_core c
                                  WHERE c.quota_key_id = key.k AND c.exceptional_state = 'blocked_by_quota'
                                  ORDER BY c.route_id LIMIT 1)
          FROM unnest(keys, most) AS key (k, most) WHERE key.most > 0
         UNION ALL
        SELECT held.k, held.most, (SELECT c.route_id FROM ff.exec_core c
                                    WHERE c.quota_key_id = held.k AND c.route_id > held.route_id
                                      AND c.exceptional_state = 'blocked_by_quota'
                                    ORDER BY c.route_id LIMIT 1)
          FROM held_route AS held WHERE held.route_id IS NOT NULL
    )
    SELECT array_agg(held.k), array_agg(held.route_id), array_agg(held.most), array_agg(held.most - (
               SELECT count(*) FROM (SELECT FROM ff.ready r
                                      WHERE r.quota_key_id = held.k AND r.route_id = held.route_id
                                      LIMIT held.most) AS claimable)::integer)
      INTO route_keys, routes, route_most, free
      FROM held_route AS held WHERE held.route_id IS NOT NULL;

    WITH best AS MATERIALIZED (
        SELECT e.partition_key, e.execution_id
          FROM unnest(route_keys, routes, free) AS key (k, route_id, free)
         CROSS JOIN LATERAL (
               SELECT c.partition_key, c.execution_id FROM ff.exec_core c
                WHERE c.quota_key_id = key.k AND c.route_id = key.route_id
                  AND c.exceptional_state = 'blocked_by_quota'
                ORDER BY c.priority DESC, c.created_at_ms, c.execution_id
                LIMIT key.free FOR NO KEY UPDATE SKIP LOCKED) AS e
    ), freed AS (
        UPDATE ff.exec_core e
           SET eligibility_state = 'eligible_now', blocking_reason = 'waiting_for_worker',
               blocking_detail = NULL, last_mutation_at_ms = now_ms
          FROM best
         WHERE e.partition_key = best.partition_key AND e.execution_id = best.execution_id
        RETURNING e.route_id, e.created_at_ms, e.priority, e.partition_key, e.execution_id, e.deadline_at_ms,
                  e.quota_key_id, e.budget_ids
    ), queued AS (
        INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms,
                              quota_key_id, budget_ids, queued_by)
        SELECT freed.*, pg_current_xact_id() FROM freed
    )
    SELECT count(*), array_agg(DISTINCT route.lane_id) INTO moved, freed_lanes
      FROM freed JOIN ff.route route USING (route_id);

    IF at_most = ANY (free) OR moved < (SELECT sum(f) FROM unnest(free) AS f) THEN
        passed_over := ARRAY(
            SELECT held.k
              FROM unnest(route_keys, routes, route_most, free) AS held (k, route_id, most, free)
             WHERE EXISTS (SELECT FROM ff.exec_core c
                            WHERE c.quota_key_id = held.k AND c.route_id = held.route_id
                              AND c.exceptional_state = 'blocked_by_quota' OFFSET 0)
               AND (held.free = at_most
                    OR (SELECT count(*) FROM (SELECT FROM ff.ready r
                                               WHERE r.quota_key_id = held.k AND r.route_id = held.route_id
                                               LIMIT held.most) AS claimable) < held.most));
    END IF;
    UPDATE ff.quota_key q SET next_at_ms = due.next_at_ms
      FROM (SELECT key.k, key.noted,
                   CASE WHEN key.again IS NOT NULL THEN key.again     -- nothing of it was let go
                        WHEN key.k IN (SELECT unnest(passed_over)) THEN now_ms END AS next_at_ms
              FROM unnest(keys, again, noted) AS key (k, again, noted) OFFSET 0) AS due
     WHERE due.next_at_ms IS DISTINCT FROM due.noted
       AND q.partition_key = ff.quota_partition(due.k, partitions) AND q.quota_key_id = due.k;

    PERFORM ff.wake('lane:' || lane_id) FROM unnest(freed_lanes) AS lane_id;
    RETURN moved;
END
$function$;

CREATE OR REPLACE FUNCTION ff.unknown_budgets(given_budget_id uuid[])
 RETURNS uuid[]
 LANGUAGE plpgsql
 STABLE STRICT
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
 SET enable_hashjoin TO 'off'
 SET enable_mergejoin TO 'off'
 SET plan_cache_mode TO 'force_generic_plan'
AS $function$
BEGIN
    RETURN (SELECT array_agg(given.id ORDER BY given.id)
              FROM (SELECT DISTINCT id FROM unnest(given_budget_id) AS id) AS given
             WHERE NOT EXISTS (SELECT FROM ff.budget_policy p
                                WHERE p.partition_key = ff.budget_partition(given.id)
                                  AND p.budget_id = given.id));
END
$function$;

CREATE OR REPLACE FUNCTION ff.wake(p_topic text)
 RETURNS boolean
 LANGUAGE plpgsql
 SET search_path TO 'pg_catalog', 'pg_temp'
 SET enable_seqscan TO 'off'
AS $function$
BEGIN
    IF EXISTS (SELECT FROM ff.waiter
                WHERE topic = p_topic AND waiting_until_ms > ff.now_ms()) THEN
        PERFORM pg_notify('ff_wake', p_topic);
        RETURN true;
    END IF;
    RETURN false;
END
$function$;
