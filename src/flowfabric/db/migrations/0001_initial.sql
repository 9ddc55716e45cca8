-- Tables, indexes, storage settings, constraints and views of schema ff. Functions are in ../functions.
-- Nothing here calls a function of ours: functions are created after the migrations.

-- The partition counts, and the processes that wait for notifications.

CREATE TABLE ff.partition_config (
    singleton             boolean PRIMARY KEY DEFAULT true,
    num_flow_partitions   integer NOT NULL,
    num_budget_partitions integer NOT NULL,
    num_quota_partitions  integer NOT NULL,
    version               text NOT NULL,
    CONSTRAINT partition_config_singleton CHECK (singleton),
    CONSTRAINT partition_config_counts CHECK (
        num_flow_partitions BETWEEN 1 AND 32767
        AND num_budget_partitions BETWEEN 1 AND 32767
        AND num_quota_partitions BETWEEN 1 AND 32767)
);
COMMENT ON TABLE ff.partition_config IS 'One row: the partition counts that every process must agree on.';
COMMENT ON COLUMN ff.partition_config.singleton IS 'Always true: the key that allows only one row.';
COMMENT ON COLUMN ff.partition_config.version IS 'Version of the layout of this row.';

CREATE UNLOGGED TABLE ff.waiter (
    topic            text NOT NULL,
    waiter_id        text NOT NULL,
    waiting_until_ms bigint NOT NULL,
    PRIMARY KEY (topic, waiter_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
COMMENT ON TABLE ff.waiter IS
    'Processes that wait for a NOTIFY of a topic. A topic without a row here is not notified. Unlogged: a '
    'lost row costs one polling interval, never work.';
COMMENT ON COLUMN ff.waiter.topic IS 'lane:<lane_id>, worker:<worker_instance_id>, completion, lease or operator.';
COMMENT ON COLUMN ff.waiter.waiting_until_ms IS
    'When the registration expires. A process renews it while it waits.';

-- Executions: the columns that change (exec_core), what was submitted (exec_body), and the attempts.

CREATE TABLE ff.lane_registry (
    lane_id             text PRIMARY KEY,
    registered_at_ms    bigint NOT NULL,
    registered_by       text NOT NULL,
    lane_state          text NOT NULL DEFAULT 'active',
    state_changed_at_ms bigint,
    state_changed_by    text,
    state_reason        text,
    retention_ms        bigint,
    CONSTRAINT lane_registry_lane_state CHECK (lane_state IN ('active', 'paused', 'draining', 'disabled')),
    CONSTRAINT lane_registry_retention CHECK (retention_ms >= 0)
);
COMMENT ON TABLE ff.lane_registry IS 'One row per lane, shared by all namespaces.';
COMMENT ON COLUMN ff.lane_registry.registered_by IS 'create_execution, or the worker that serves the lane.';
COMMENT ON COLUMN ff.lane_registry.retention_ms IS
    'How long finished executions are kept; 0 keeps them for ever, NULL means the default.';

CREATE TABLE ff.route (
    route_id              bigint PRIMARY KEY,
    namespace             text NOT NULL,
    lane_id               text NOT NULL,
    execution_kind        text NOT NULL,
    required_capabilities text[] NOT NULL,
    CONSTRAINT route_lane_id CHECK (octet_length(lane_id) BETWEEN 1 AND 64 AND lane_id ~ '^[ -~]+$'),
    CONSTRAINT route_execution_kind CHECK (octet_length(execution_kind) BETWEEN 1 AND 256),
    CONSTRAINT route_namespace CHECK (octet_length(namespace) BETWEEN 1 AND 256)
);
CREATE INDEX route_lane ON ff.route (lane_id, namespace, execution_kind);
COMMENT ON TABLE ff.route IS
    'What a worker must offer to claim an execution: executions of one route are claimable by the same '
    'workers. Few rows, read by every claim.';
COMMENT ON COLUMN ff.route.route_id IS
    'Hash of the other columns, computed by ff.route_id; the same in every process.';

CREATE TABLE ff.exec_core (
    partition_key                  smallint NOT NULL,
    attempt_index                  integer NOT NULL DEFAULT 0,
    execution_id                   uuid NOT NULL,
    route_id                       bigint NOT NULL,
    created_at_ms                  bigint NOT NULL,
    last_mutation_at_ms            bigint NOT NULL,
    lease_epoch                    bigint NOT NULL DEFAULT 0,
    priority                       integer NOT NULL DEFAULT 0,
    total_attempt_count            integer NOT NULL DEFAULT 0,
    retry_count                    integer NOT NULL DEFAULT 0,
    replay_count                   integer NOT NULL DEFAULT 0,
    lease_reclaim_count            integer NOT NULL DEFAULT 0,
    infra_release_count            integer NOT NULL DEFAULT 0,
    progress_pct                   smallint,
    resume_pending                 boolean NOT NULL DEFAULT false,
    lease_lost                     boolean NOT NULL DEFAULT false,
    flow_cancelled                 boolean NOT NULL DEFAULT false,
    lifecycle_phase                text NOT NULL DEFAULT 'runnable',
    eligibility_state              text NOT NULL,
    blocking_reason                text NOT NULL,
    terminal_outcome               text NOT NULL DEFAULT 'none',
    attempt_state                  text NOT NULL DEFAULT 'pending_first_attempt',
    ownership_state                text NOT NULL GENERATED ALWAYS AS (
        CASE WHEN lifecycle_phase = 'active' THEN 'leased' ELSE 'unowned' END) STORED,
    public_state                   text NOT NULL GENERATED ALWAYS AS (
        CASE lifecycle_phase
            WHEN 'active' THEN 'active'
            WHEN 'suspended' THEN 'suspended'
            WHEN 'terminal' THEN
                CASE terminal_outcome WHEN 'success' THEN 'completed' ELSE terminal_outcome END
            ELSE CASE eligibility_state
                WHEN 'eligible_now' THEN CASE WHEN resume_pending THEN 'resumable' ELSE 'waiting' END
                WHEN 'not_eligible_until_time' THEN 'delayed'
                WHEN 'blocked_by_dependencies' THEN 'waiting_children'
                WHEN 'blocked_by_budget' THEN 'rate_limited'
                WHEN 'blocked_by_quota' THEN 'rate_limited'
                ELSE 'waiting' END
        END) STORED,
    tags                           jsonb NOT NULL DEFAULT '{}',
    flow_id                        uuid,
    delay_until_ms                 bigint,
    not_before_ms                  bigint,
    deadline_at_ms                 bigint,
    started_at_ms                  bigint,
    terminal_at_ms                 bigint,
    last_capability_mismatch_at_ms bigint,
    lease_id                       uuid,
    lease_expires_at_ms            bigint,
    attempt_started_at_ms          bigint,
    attempt_timeout_at_ms          bigint,
    attempt_type                   text,
    worker_id                      text,
    worker_instance_id             text,
    progress_message               text,
    blocking_detail                text,
    failure_reason                 text,
    failure_category               text,
    cancellation_reason            text,
    cancelled_by                   text,
    PRIMARY KEY (partition_key, execution_id),
    CONSTRAINT exec_core_priority CHECK (priority BETWEEN 0 AND 9000),
    CONSTRAINT exec_core_lifecycle_phase CHECK (
        lifecycle_phase IN ('runnable', 'active', 'suspended', 'terminal')),
    CONSTRAINT exec_core_eligibility_state CHECK (
        eligibility_state IN ('eligible_now', 'not_eligible_until_time', 'blocked_by_dependencies',
            'blocked_by_budget', 'blocked_by_quota', 'blocked_by_route', 'blocked_by_lane_state',
            'blocked_by_operator', 'not_applicable')),
    CONSTRAINT exec_core_blocking_reason CHECK (
        blocking_reason IN ('none', 'waiting_for_worker', 'waiting_for_retry_backoff',
            'waiting_for_resume_delay', 'waiting_for_delay', 'waiting_for_signal',
            'waiting_for_approval', 'waiting_for_callback', 'waiting_for_tool_result',
            'waiting_for_children', 'waiting_for_budget', 'waiting_for_quota',
            'waiting_for_capable_worker', 'waiting_for_locality_match', 'paused_by_operator',
            'paused_by_policy', 'paused_by_flow_cancel')),
    CONSTRAINT exec_core_terminal_outcome CHECK (
        terminal_outcome IN ('none', 'success', 'failed', 'cancelled', 'expired', 'skipped')),
    CONSTRAINT exec_core_attempt_state CHECK (
        attempt_state IN ('none', 'pending_first_attempt', 'running_attempt', 'attempt_interrupted',
            'pending_retry_attempt', 'pending_replay_attempt', 'attempt_terminal')),
    CONSTRAINT exec_core_attempt_type CHECK (
        attempt_type IN ('initial', 'retry', 'reclaim', 'replay')),
    CONSTRAINT exec_core_public_state CHECK (
        public_state IN ('waiting', 'delayed', 'rate_limited', 'waiting_children', 'active',
            'suspended', 'resumable', 'completed', 'failed', 'cancelled', 'expired', 'skipped')),
    CONSTRAINT exec_core_ownership_state CHECK (ownership_state IN ('unowned', 'leased')),
    CONSTRAINT exec_core_runnable_is_eligible_or_blocked CHECK (
        (lifecycle_phase = 'runnable') = (eligibility_state <> 'not_applicable')),
    CONSTRAINT exec_core_terminal_has_an_outcome CHECK (
        (lifecycle_phase = 'terminal') = (terminal_outcome <> 'none')
        AND (lifecycle_phase = 'terminal') = (terminal_at_ms IS NOT NULL)),
    CONSTRAINT exec_core_running_while_active CHECK (
        (lifecycle_phase = 'active') = (attempt_state = 'running_attempt')),
    CONSTRAINT exec_core_leased_while_active CHECK (
        (lifecycle_phase = 'active') = (lease_expires_at_ms IS NOT NULL)
        AND (lifecycle_phase = 'active') = (worker_instance_id IS NOT NULL)
        AND (lifecycle_phase = 'active') = (worker_id IS NOT NULL)
        AND (lifecycle_phase <> 'active' OR lease_id IS NOT NULL)),
    CONSTRAINT exec_core_delayed_until_an_instant CHECK (
        (eligibility_state = 'not_eligible_until_time') = (delay_until_ms IS NOT NULL)),
    CONSTRAINT exec_core_not_before_while_blocked CHECK (
        not_before_ms IS NULL OR eligibility_state IN ('blocked_by_dependencies', 'blocked_by_operator'))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
-- Claim order: best first within a route.
CREATE INDEX exec_core_claim ON ff.exec_core (route_id, priority DESC, created_at_ms, execution_id)
    WHERE eligibility_state = 'eligible_now';
CREATE INDEX exec_core_delayed ON ff.exec_core (delay_until_ms) WHERE delay_until_ms IS NOT NULL;
-- Has no lease_expires_at_ms: renewing a lease then changes no indexed column (HOT update).
CREATE INDEX exec_core_leased ON ff.exec_core (attempt_started_at_ms) WHERE lifecycle_phase = 'active';
CREATE INDEX exec_core_attempt_timeout ON ff.exec_core (attempt_timeout_at_ms)
    WHERE attempt_timeout_at_ms IS NOT NULL;
CREATE INDEX exec_core_deadline ON ff.exec_core (deadline_at_ms)
    WHERE deadline_at_ms IS NOT NULL AND lifecycle_phase <> 'terminal';
CREATE INDEX exec_core_flow ON ff.exec_core (partition_key, flow_id) WHERE flow_id IS NOT NULL;
-- Outcomes that operators search for; successes are found by time.
CREATE INDEX exec_core_not_success ON ff.exec_core (terminal_outcome, created_at_ms, execution_id)
    WHERE terminal_outcome IN ('failed', 'cancelled', 'expired', 'skipped');
-- Finished executions, oldest first within a route: for retention.
CREATE INDEX exec_core_finished ON ff.exec_core (route_id, terminal_at_ms) WHERE lifecycle_phase = 'terminal';
-- Executions that wait neither for a worker nor for an instant; there are few.
CREATE INDEX exec_core_held_back ON ff.exec_core (route_id)
    WHERE lifecycle_phase = 'suspended'
       OR eligibility_state IN ('blocked_by_dependencies', 'blocked_by_budget', 'blocked_by_quota',
              'blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator');
-- Members of a cancelled flow that are about to be ended.
CREATE INDEX exec_core_parked ON ff.exec_core (partition_key, flow_id)
    WHERE blocking_reason = 'paused_by_flow_cancel';
-- In the order of a hash: a sweep that reads a batch from a random hash on reaches every row equally.
CREATE INDEX exec_core_waits_for_others ON ff.exec_core (uuid_hash(execution_id))
    WHERE eligibility_state = 'blocked_by_dependencies';
COMMENT ON TABLE ff.exec_core IS
    'One row per execution: the columns that change. Every transition locks this row; a call of a worker is '
    'refused unless it has the lease in this row.';
COMMENT ON COLUMN ff.exec_core.attempt_index IS
    'Number of the running attempt, or of the attempt that the next claim starts.';
COMMENT ON COLUMN ff.exec_core.lease_epoch IS
    'Grows with every claim and whenever a lease expires or is revoked; a call with an older epoch is refused.';
COMMENT ON COLUMN ff.exec_core.lease_reclaim_count IS 'Claims that followed a lost lease.';
COMMENT ON COLUMN ff.exec_core.infra_release_count IS
    'How often in a row the attempt was released because of trouble with the database.';
COMMENT ON COLUMN ff.exec_core.resume_pending IS
    'The execution was suspended and can continue. Not used yet.';
COMMENT ON COLUMN ff.exec_core.lease_lost IS
    'The last lease expired or was revoked; the next claim counts as a reclaim.';
COMMENT ON COLUMN ff.exec_core.flow_cancelled IS
    'The flow of the execution was cancelled while the execution ran: instead of being queued again, the '
    'execution is ended.';
COMMENT ON COLUMN ff.exec_core.blocking_detail IS 'Why the execution is held back, in words.';
COMMENT ON COLUMN ff.exec_core.delay_until_ms IS
    'Not claimable before this instant. Set exactly while the execution is delayed.';
COMMENT ON COLUMN ff.exec_core.not_before_ms IS
    'The delay of an execution that waits for dependencies; it applies once they are satisfied. On an '
    'execution blocked by an operator, a value means that it waits for dependencies as well.';
COMMENT ON COLUMN ff.exec_core.last_capability_mismatch_at_ms IS
    'When a claim grant was last refused because the worker lacks a capability.';
COMMENT ON COLUMN ff.exec_core.lease_id IS
    'Random, made by the caller of the last claim. Kept after the lease has ended, so that a repeated call '
    'is recognised.';
COMMENT ON COLUMN ff.exec_core.lease_expires_at_ms IS
    'Set exactly while the execution is active. Not indexed: see exec_core_leased.';
COMMENT ON COLUMN ff.exec_core.attempt_timeout_at_ms IS 'When the running attempt times out.';
COMMENT ON COLUMN ff.exec_core.worker_id IS 'The pool of the worker that holds the lease.';
COMMENT ON COLUMN ff.exec_core.worker_instance_id IS 'The process that holds the lease.';
COMMENT ON COLUMN ff.exec_core.failure_reason IS 'Why the last attempt failed, or why the execution ended.';
COMMENT ON COLUMN ff.exec_core.cancelled_by IS 'The source of the call; the name of the operator is in operator_event.';

CREATE TABLE ff.exec_body (
    partition_key    smallint NOT NULL,
    execution_id     uuid NOT NULL,
    created_at_ms    bigint NOT NULL,
    payload          bytea NOT NULL,
    payload_encoding text,
    creator_identity text,
    idempotency_key  text,
    policy           jsonb,
    member_name      text,
    PRIMARY KEY (partition_key, execution_id)
);
CREATE INDEX exec_body_created ON ff.exec_body (created_at_ms, execution_id);
COMMENT ON TABLE ff.exec_body IS
    'One row per execution: what was submitted. Transitions do not rewrite this row; the payload changes '
    'only when the result of an upstream is passed to the execution.';
COMMENT ON COLUMN ff.exec_body.payload IS
    'The arguments, or the result of an upstream that was passed to the execution.';
COMMENT ON COLUMN ff.exec_body.policy IS 'Retries, timeouts and limits as they were at submit.';
COMMENT ON COLUMN ff.exec_body.member_name IS 'Name of the execution in its flow.';

CREATE TABLE ff.exec_tag (
    partition_key smallint NOT NULL,
    execution_id  uuid NOT NULL,
    tag_key       text NOT NULL,
    tag_value     text NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, execution_id, tag_key),
    CONSTRAINT exec_tag_tag_key CHECK (
        tag_key ~ '^[a-z][a-z0-9_]*\.[a-z0-9_][a-z0-9_.]*$'
        AND octet_length(tag_key) <= 256)
);
CREATE INDEX exec_tag_search ON ff.exec_tag (tag_key, tag_value, created_at_ms, execution_id);
COMMENT ON TABLE ff.exec_tag IS 'One row per tag of an execution, for searching by tag, newest first.';
COMMENT ON COLUMN ff.exec_tag.created_at_ms IS
    'When the execution was created, not the tag: searches sort by it.';

CREATE TABLE ff.exec_idempotency (
    partition_key   smallint NOT NULL,
    namespace       text NOT NULL,
    idempotency_key text NOT NULL,
    execution_id    uuid NOT NULL,
    expires_at_ms   bigint NOT NULL,
    PRIMARY KEY (partition_key, namespace, idempotency_key)
);
COMMENT ON TABLE ff.exec_idempotency IS
    'One row per idempotency key: the execution that a repeated submit returns until the key expires.';
COMMENT ON COLUMN ff.exec_idempotency.partition_key IS
    'ff.key_partition of namespace and key; the execution is in the same partition.';
COMMENT ON COLUMN ff.exec_idempotency.expires_at_ms IS 'From then on the key can be used for another execution.';

CREATE TABLE ff.attempt (
    partition_key      smallint NOT NULL,
    attempt_index      integer NOT NULL,
    execution_id       uuid NOT NULL,
    lease_id           uuid NOT NULL,
    lease_epoch        bigint NOT NULL,
    started_at_ms      bigint NOT NULL,
    ended_at_ms        bigint NOT NULL,
    attempt_type       text NOT NULL,
    outcome            text NOT NULL,
    worker_id          text NOT NULL,
    worker_instance_id text NOT NULL,
    failure_reason     text,
    failure_category   text,
    failure_detail     text,
    result             bytea,
    result_encoding    text,
    PRIMARY KEY (partition_key, execution_id, attempt_index),
    CONSTRAINT attempt_attempt_type CHECK (attempt_type IN ('initial', 'retry', 'reclaim', 'replay')),
    CONSTRAINT attempt_outcome CHECK (
        outcome IN ('success', 'failed', 'retry', 'cancelled', 'expired', 'skipped', 'interrupted',
            'waiting_children', 'suspended', 'lease_expired_reclaimable', 'lease_revoked',
            'interrupted_reclaimed'))
);
COMMENT ON TABLE ff.attempt IS
    'One row per attempt that ended or was interrupted. The attempt that runs now is described by its row '
    'in exec_core.';
COMMENT ON COLUMN ff.attempt.lease_id IS 'The lease that the attempt ended under.';
COMMENT ON COLUMN ff.attempt.result_encoding IS
    'How the result is encoded: json, msgpack, bytes, or the name of a codec; NULL: as the payload.';
COMMENT ON COLUMN ff.attempt.ended_at_ms IS 'When the attempt ended or was last interrupted.';

-- Outboxes. Each has one sequence over all partitions, because readers need one order. Namespace, lane
-- and kind of the execution are those of its route.

CREATE TABLE ff.completion_event (
    event_id         bigint GENERATED ALWAYS AS IDENTITY,
    execution_id     uuid NOT NULL,
    route_id         bigint NOT NULL,
    occurred_at_ms   bigint NOT NULL,
    partition_key    smallint NOT NULL,
    outcome          text NOT NULL,
    flow_id          uuid,
    tags             jsonb,
    dispatched_at_ms bigint,
    PRIMARY KEY (event_id, partition_key),
    CONSTRAINT completion_event_outcome CHECK (
        outcome IN ('success', 'failed', 'cancelled', 'expired', 'skipped'))
);
-- For history and retention. Execution ids ascend with time, so this index grows at its end.
CREATE INDEX completion_event_execution ON ff.completion_event (execution_id);
-- For dispatch: completions of flow members that are not dispatched yet.
CREATE INDEX completion_event_undispatched ON ff.completion_event (event_id)
    WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL;
COMMENT ON TABLE ff.completion_event IS
    'Outbox of completions: one row each time an execution ends; a replayed execution has several.';
COMMENT ON COLUMN ff.completion_event.event_id IS
    'Ascending, with gaps; not in the order of commits. Readers must resolve gaps.';
COMMENT ON COLUMN ff.completion_event.dispatched_at_ms IS
    'When the edges of the flow were resolved with this completion; NULL until then, and for executions '
    'outside flows.';

CREATE TABLE ff.lease_event (
    event_id           bigint GENERATED ALWAYS AS IDENTITY,
    execution_id       uuid NOT NULL,
    lease_id           uuid NOT NULL,
    route_id           bigint NOT NULL,
    lease_epoch        bigint NOT NULL,
    occurred_at_ms     bigint NOT NULL,
    attempt_index      integer NOT NULL,
    partition_key      smallint NOT NULL,
    event_type         text NOT NULL,
    reason             text,
    worker_instance_id text NOT NULL,
    tags               jsonb,
    PRIMARY KEY (event_id, partition_key),
    CONSTRAINT lease_event_event_type CHECK (
        event_type IN ('acquired', 'renewed', 'expired', 'reclaimed', 'revoked')),
    CONSTRAINT lease_event_reason CHECK (
        reason IN ('completed', 'failed', 'retry', 'delay', 'waiting_children', 'suspended',
            'cancelled', 'released', 'operator'))
);
-- For history and retention, as on completion_event.
CREATE INDEX lease_event_execution ON ff.lease_event (execution_id);
COMMENT ON TABLE ff.lease_event IS
    'Outbox of lease changes: acquired, renewed if the full history is kept, reclaimed, expired, revoked.';
COMMENT ON COLUMN ff.lease_event.reason IS 'Why the lease ended before its expiry.';

CREATE TABLE ff.operator_event (
    event_id       bigint GENERATED ALWAYS AS IDENTITY,
    execution_id   uuid,
    flow_id        uuid,
    route_id       bigint,
    lease_epoch    bigint,
    occurred_at_ms bigint NOT NULL,
    partition_key  smallint NOT NULL,
    event_type     text NOT NULL,
    actor          text NOT NULL,
    reason         text,
    details        jsonb NOT NULL,
    tags           jsonb,
    PRIMARY KEY (event_id, partition_key),
    CONSTRAINT operator_event_event_type CHECK (
        event_type IN ('cancelled', 'completed', 'failed', 'delayed', 'lease_revoked', 'priority_changed',
            'replayed', 'blocked', 'unblocked', 'flow_cancel_requested', 'flow_replayed', 'lane_state_changed', 'lane_retention_changed', 'retention_trimmed',
            'key_rotated'))
);
CREATE INDEX operator_event_execution ON ff.operator_event (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX operator_event_age ON ff.operator_event (occurred_at_ms) WHERE execution_id IS NULL;
COMMENT ON TABLE ff.operator_event IS
    'Outbox and audit trail of operator actions. An action on a lane, a flow or a key has no execution.';
COMMENT ON COLUMN ff.operator_event.lease_epoch IS
    'Of the execution after the action: its place among the lease events.';
COMMENT ON COLUMN ff.operator_event.partition_key IS 'Of the execution or flow, else 0.';
COMMENT ON COLUMN ff.operator_event.details IS 'The values before and after.';

-- Workers, grants of remote schedulers, and the keys that sign grants.

CREATE TABLE ff.worker_registry (
    partition_key      smallint NOT NULL,
    namespace          text NOT NULL,
    worker_instance_id text NOT NULL,
    worker_id          text NOT NULL,
    lanes              text[] NOT NULL,
    capabilities       text[] NOT NULL,
    kinds              text[] NOT NULL,
    concurrency        integer NOT NULL,
    last_heartbeat_ms  bigint NOT NULL,
    liveness_ttl_ms    bigint NOT NULL,
    registered_at_ms   bigint NOT NULL,
    stuck_threads      jsonb NOT NULL DEFAULT '{}',
    unclaimed_kinds    text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (partition_key, namespace, worker_instance_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE ff.worker_registry IS 'One row per live worker process, and what it offers.';
COMMENT ON COLUMN ff.worker_registry.last_heartbeat_ms IS 'When the process last sent a heartbeat.';
COMMENT ON COLUMN ff.worker_registry.liveness_ttl_ms IS
    'Without a heartbeat for this long the process counts as dead.';
COMMENT ON COLUMN ff.worker_registry.stuck_threads IS
    'By kind: how many threads of the process still run although their attempts are over.';
COMMENT ON COLUMN ff.worker_registry.unclaimed_kinds IS
    'Kinds that the process does not claim until one of its stuck threads has returned.';

CREATE TABLE ff.worker_registry_event (
    partition_key      smallint NOT NULL,
    namespace          text NOT NULL,
    worker_instance_id text NOT NULL,
    event_at_ms        bigint NOT NULL,
    event_kind         text NOT NULL,
    worker_id          text NOT NULL,
    reason             text,
    PRIMARY KEY (partition_key, namespace, worker_instance_id, event_at_ms, event_kind),
    CONSTRAINT worker_registry_event_event_kind CHECK (
        event_kind IN ('registered', 'heartbeat', 'marked_dead', 'ttl_swept'))
);
CREATE INDEX worker_registry_event_age ON ff.worker_registry_event (event_at_ms);
COMMENT ON TABLE ff.worker_registry_event IS
    'When worker processes registered, sent their last heartbeat, and were removed.';

CREATE TABLE ff.waitpoint_hmac (
    kid           text PRIMARY KEY,
    secret        bytea NOT NULL,
    rotated_at_ms bigint NOT NULL,
    active        boolean NOT NULL,
    expires_at_ms bigint,
    CONSTRAINT waitpoint_hmac_kid CHECK (kid <> '' AND strpos(kid, ':') = 0),
    CONSTRAINT waitpoint_hmac_active_never_expires CHECK (active = (expires_at_ms IS NULL))
);
CREATE UNIQUE INDEX waitpoint_hmac_one_active ON ff.waitpoint_hmac (active) WHERE active;
COMMENT ON TABLE ff.waitpoint_hmac IS
    'Keys that sign grants. One is active and signs; retired ones verify until they expire.';
COMMENT ON COLUMN ff.waitpoint_hmac.expires_at_ms IS
    'Until when a retired key verifies; NULL for the active one.';

CREATE TABLE ff.claim_grant (
    partition_key       smallint NOT NULL,
    grant_id            bytea NOT NULL,
    execution_id        uuid NOT NULL,
    kind                text NOT NULL,
    worker_id           text NOT NULL,
    worker_instance_id  text NOT NULL,
    lane_id             text NOT NULL,
    worker_capabilities text[] NOT NULL,
    capability_hash     text,
    route_snapshot_json jsonb,
    admission_summary   text,
    grant_ttl_ms        bigint NOT NULL,
    issued_at_ms        bigint NOT NULL,
    expires_at_ms       bigint NOT NULL,
    lease_epoch         bigint NOT NULL,
    PRIMARY KEY (partition_key, grant_id),
    CONSTRAINT claim_grant_kind CHECK (kind IN ('claim', 'reclaim'))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX claim_grant_execution ON ff.claim_grant (partition_key, execution_id);
CREATE INDEX claim_grant_expiry ON ff.claim_grant (expires_at_ms);
COMMENT ON TABLE ff.claim_grant IS
    'Grants of remote schedulers. An unexpired grant of kind claim reserves its execution for one worker; '
    'an expired grant has no effect, nor has one that is used up (see unused_grant).';
COMMENT ON COLUMN ff.claim_grant.grant_id IS 'SHA-256 of the text of the grant; the text itself is not stored.';
COMMENT ON COLUMN ff.claim_grant.kind IS
    'claim reserves a claimable execution; reclaim lets a worker take over one whose lease was lost.';
COMMENT ON COLUMN ff.claim_grant.route_snapshot_json IS 'Given by the scheduler, for its own records.';
COMMENT ON COLUMN ff.claim_grant.admission_summary IS 'Given by the scheduler, for its own records.';
COMMENT ON COLUMN ff.claim_grant.lease_epoch IS
    'The last epoch of the execution before the lease that the grant is for.';

-- Every lease has a higher epoch than the one before. So a grant is used up by whatever leases the
-- execution, without a write.
CREATE VIEW ff.unused_grant AS
    SELECT g.partition_key, g.grant_id, g.execution_id, g.kind, g.worker_id, g.worker_instance_id,
           g.issued_at_ms, g.expires_at_ms
      FROM ff.claim_grant g JOIN ff.exec_core e USING (partition_key, execution_id)
     WHERE g.lease_epoch >= e.lease_epoch AND e.lifecycle_phase <> 'terminal';
COMMENT ON VIEW ff.unused_grant IS
    'Grants whose execution was not leased since they were issued, and has not ended; some have expired.';

-- Flows: graphs of executions, their joins, and the cancellation of whole flows.

CREATE TABLE ff.flow_core (
    partition_key       smallint NOT NULL,
    flow_id             uuid NOT NULL,
    flow_kind           text NOT NULL,
    namespace           text NOT NULL,
    public_flow_state   text NOT NULL DEFAULT 'open',
    graph_revision      bigint NOT NULL DEFAULT 0,
    node_count          integer NOT NULL DEFAULT 0,
    edge_count          integer NOT NULL DEFAULT 0,
    created_at_ms       bigint NOT NULL,
    last_mutation_at_ms bigint NOT NULL,
    terminal_at_ms      bigint,
    cancel_reason       text,
    cancellation_policy text,
    tags                jsonb NOT NULL DEFAULT '{}',
    graph_digest        bytea,
    PRIMARY KEY (partition_key, flow_id),
    CONSTRAINT flow_core_public_flow_state CHECK (public_flow_state IN ('open', 'cancelled')),
    CONSTRAINT flow_core_cancellation_policy CHECK (
        cancellation_policy IN ('cancel_flow_only', 'cancel_all', 'cancel_pending')),
    CONSTRAINT flow_core_cancelled_at_an_instant CHECK (
        (public_flow_state = 'cancelled') = (terminal_at_ms IS NOT NULL)
        AND (public_flow_state = 'cancelled') = (cancellation_policy IS NOT NULL)),
    CONSTRAINT flow_core_revision CHECK (graph_revision = node_count + edge_count)
);
-- Flows that never got a member.
CREATE INDEX flow_core_empty ON ff.flow_core (last_mutation_at_ms) WHERE node_count = 0;
COMMENT ON TABLE ff.flow_core IS
    'One row per flow. The state of the flow is computed from its members; only a cancellation is stored.';
COMMENT ON COLUMN ff.flow_core.public_flow_state IS
    'open, or cancelled; every other state is computed from the members.';
COMMENT ON COLUMN ff.flow_core.graph_revision IS
    'Number of members plus edges. A caller that changes the graph names the revision that it read.';
COMMENT ON COLUMN ff.flow_core.graph_digest IS
    'Digest of the kind, members and edges that the flow was started with; NULL without an idempotency key.';

CREATE TABLE ff.edge (
    partition_key     smallint NOT NULL,
    flow_id           uuid NOT NULL,
    edge_id           uuid NOT NULL,
    upstream_eid      uuid NOT NULL,
    group_id          uuid NOT NULL,
    min_event_id      bigint NOT NULL DEFAULT 0,
    resolved_event_id bigint,
    created_at_ms     bigint NOT NULL,
    applied_at_ms     bigint,
    resolved_at_ms    bigint,
    edge_state        text NOT NULL DEFAULT 'pending',
    resolution        text NOT NULL DEFAULT 'unresolved',
    resolved_outcome  text,
    dependency_kind   text NOT NULL DEFAULT 'success_only',
    created_by        text NOT NULL DEFAULT 'engine',
    data_passing_ref  text,
    PRIMARY KEY (partition_key, flow_id, edge_id),
    CONSTRAINT edge_edge_state CHECK (edge_state IN ('pending', 'applied')),
    CONSTRAINT edge_resolution CHECK (resolution IN ('unresolved', 'satisfied', 'impossible')),
    CONSTRAINT edge_resolved_outcome CHECK (
        resolved_outcome IN ('success', 'failed', 'cancelled', 'expired', 'skipped')),
    CONSTRAINT edge_dependency_kind CHECK (dependency_kind = 'success_only'),
    CONSTRAINT edge_resolved_by_an_outcome CHECK ((resolution = 'unresolved') = (resolved_outcome IS NULL)),
    CONSTRAINT edge_resolves_once_applied CHECK (resolution = 'unresolved' OR edge_state = 'applied')
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX edge_pair ON ff.edge (partition_key, upstream_eid, group_id);
CREATE INDEX edge_group_edges ON ff.edge (partition_key, group_id);
COMMENT ON TABLE ff.edge IS
    'One row per dependency: once the edge is applied, the join group_id waits for the execution '
    'upstream_eid. The counters of edge_group are computed from the resolutions here.';
COMMENT ON COLUMN ff.edge.min_event_id IS
    'Completions of the upstream up to this event do not resolve the edge: the upstream was replayed '
    'after them.';
COMMENT ON COLUMN ff.edge.resolved_event_id IS 'The completion event that resolved the edge.';
COMMENT ON COLUMN ff.edge.applied_at_ms IS 'Since when the join waits for the edge.';
COMMENT ON COLUMN ff.edge.data_passing_ref IS
    'Set if the result of the upstream becomes the payload of the waiting execution, or with '
    '''argument:NAME'' the argument of that name in its payload.';

CREATE TABLE ff.edge_group (
    partition_key                   smallint NOT NULL,
    group_id                        uuid NOT NULL,
    flow_id                         uuid NOT NULL,
    waiter_eid                      uuid NOT NULL,
    fired_at_ms                     bigint,
    k                               integer,
    expected_n                      integer,
    success_count                   integer NOT NULL DEFAULT 0,
    fail_count                      integer NOT NULL DEFAULT 0,
    skip_count                      integer NOT NULL DEFAULT 0,
    running_count                   integer NOT NULL DEFAULT 0,
    cancel_siblings_pending_flag    boolean NOT NULL DEFAULT false,
    waits_as                        text NOT NULL,
    policy_kind                     text NOT NULL DEFAULT 'all_of',
    group_state                     text NOT NULL DEFAULT 'pending',
    on_satisfied                    text,
    cancel_siblings_reason          text,
    cancel_siblings_pending_members uuid[],
    cancel_siblings_pending_losers  uuid[],
    PRIMARY KEY (partition_key, group_id),
    CONSTRAINT edge_group_waits_as CHECK (waits_as IN ('member', 'children')),
    CONSTRAINT edge_group_policy_kind CHECK (policy_kind IN ('all_of', 'any_of', 'quorum')),
    CONSTRAINT edge_group_on_satisfied CHECK (on_satisfied IN ('cancel_remaining', 'let_run')),
    CONSTRAINT edge_group_group_state CHECK (group_state IN ('pending', 'satisfied', 'impossible')),
    CONSTRAINT edge_group_k CHECK ((policy_kind = 'quorum') = (k IS NOT NULL) AND k >= 1),
    CONSTRAINT edge_group_disposition CHECK ((policy_kind = 'all_of') = (on_satisfied IS NULL)),
    CONSTRAINT edge_group_counts CHECK (
        success_count >= 0 AND fail_count >= 0 AND skip_count >= 0 AND running_count >= 0),
    CONSTRAINT edge_group_fires_once CHECK ((group_state = 'pending') = (fired_at_ms IS NULL)),
    CONSTRAINT edge_group_cancel_siblings_reason CHECK (
        cancel_siblings_reason IN ('sibling_quorum_satisfied', 'sibling_quorum_impossible', 'parent_ended'))
) WITH (fillfactor = 70);
CREATE INDEX edge_group_waiter ON ff.edge_group (partition_key, waiter_eid);
COMMENT ON TABLE ff.edge_group IS
    'One row per join: a flow member waits for its upstreams, or a handler waits for its children.';
COMMENT ON COLUMN ff.edge_group.waiter_eid IS 'The execution that waits.';
COMMENT ON COLUMN ff.edge_group.waits_as IS
    'member: the execution waits for its upstreams before it runs. children: its handler waits for children.';
COMMENT ON COLUMN ff.edge_group.k IS 'How many upstreams must succeed; only of a quorum.';
COMMENT ON COLUMN ff.edge_group.expected_n IS 'The join is not decided before it has this many edges.';
COMMENT ON COLUMN ff.edge_group.fired_at_ms IS 'When the join was decided.';
COMMENT ON COLUMN ff.edge_group.success_count IS
    'Number of successful edges. This and the other counters can be recomputed from ff.edge.';
COMMENT ON COLUMN ff.edge_group.cancel_siblings_pending_flag IS
    'Upstreams that are no longer needed are still to be found or cancelled.';
COMMENT ON COLUMN ff.edge_group.cancel_siblings_pending_members IS 'The upstreams to cancel.';
COMMENT ON COLUMN ff.edge_group.cancel_siblings_pending_losers IS
    'Ended upstreams of the join, and members above them: what served only these is still to be found.';
COMMENT ON COLUMN ff.edge_group.on_satisfied IS
    'What happens to upstreams that still run when the join is decided; NULL for all_of.';

CREATE TABLE ff.pending_cancel_groups (
    partition_key  smallint NOT NULL,
    flow_id        uuid NOT NULL,
    group_id       uuid NOT NULL,
    enqueued_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id, group_id)
);
CREATE INDEX pending_cancel_groups_age ON ff.pending_cancel_groups (enqueued_at_ms);
COMMENT ON TABLE ff.pending_cancel_groups IS 'Queue of joins whose remaining upstreams are to be cancelled.';

CREATE TABLE ff.cancel_backlog (
    partition_key       smallint NOT NULL,
    flow_id             uuid NOT NULL,
    requested_at_ms     bigint NOT NULL,
    grace_until_ms      bigint NOT NULL,
    requester           text NOT NULL,
    reason              text NOT NULL,
    cancellation_policy text NOT NULL,
    status              text NOT NULL DEFAULT 'pending',
    PRIMARY KEY (partition_key, flow_id),
    CONSTRAINT cancel_backlog_status CHECK (status = 'pending')
);
CREATE INDEX cancel_backlog_due ON ff.cancel_backlog (grace_until_ms);
COMMENT ON TABLE ff.cancel_backlog IS 'Cancelled flows with members that have not ended yet.';
COMMENT ON COLUMN ff.cancel_backlog.grace_until_ms IS
    'Until then the call that cancelled the flow ends its members; afterwards a sweep ends them.';

CREATE TABLE ff.cancel_backlog_member (
    partition_key smallint NOT NULL,
    flow_id       uuid NOT NULL,
    execution_id  uuid NOT NULL,
    PRIMARY KEY (partition_key, flow_id, execution_id)
);
CREATE INDEX cancel_backlog_member_execution ON ff.cancel_backlog_member (partition_key, execution_id);
COMMENT ON TABLE ff.cancel_backlog_member IS
    'The members that a cancelled flow still has to end; a row stays until the member has ended.';

CREATE TABLE ff.flow_summary (
    partition_key            smallint NOT NULL,
    flow_id                  uuid NOT NULL,
    total_members            integer NOT NULL,
    sampled_members          integer NOT NULL,
    members_completed        integer NOT NULL,
    members_failed           integer NOT NULL,
    members_cancelled        integer NOT NULL,
    members_expired          integer NOT NULL,
    members_skipped          integer NOT NULL,
    members_active           integer NOT NULL,
    members_suspended        integer NOT NULL,
    members_waiting          integer NOT NULL,
    members_delayed          integer NOT NULL,
    members_rate_limited     integer NOT NULL,
    members_waiting_children integer NOT NULL,
    public_flow_state        text NOT NULL,
    last_summary_update_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id),
    CONSTRAINT flow_summary_public_flow_state CHECK (
        public_flow_state IN ('open', 'running', 'blocked', 'completed', 'failed', 'cancelled'))
);
-- Flows whose members are counted again.
CREATE INDEX flow_summary_unsettled ON ff.flow_summary (last_summary_update_at_ms)
    WHERE public_flow_state IN ('open', 'running', 'blocked');
COMMENT ON TABLE ff.flow_summary IS
    'State and counts of a flow as of the last projection, so that lists and retention need not count '
    'members.';
COMMENT ON COLUMN ff.flow_summary.sampled_members IS 'How many members were counted: all of them.';
COMMENT ON COLUMN ff.flow_summary.last_summary_update_at_ms IS 'When the members were counted.';

CREATE VIEW ff.settled_flow AS
    SELECT s.partition_key, s.flow_id FROM ff.flow_summary s
     WHERE s.public_flow_state IN ('completed', 'failed', 'cancelled');
COMMENT ON VIEW ff.settled_flow IS
    'Flows whose members have all ended, as of the last projection. Retention keeps members of other flows.';
