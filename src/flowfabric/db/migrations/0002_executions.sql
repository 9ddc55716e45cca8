-- Executions: what is hot and moves (exec_core), what is written once (exec_body), the ledger of
-- attempts, and the outboxes that tell of both.

CREATE TABLE ff.lane_registry (
    lane_id          text PRIMARY KEY,
    registered_at_ms bigint NOT NULL,
    registered_by    text NOT NULL
);

-- Where work goes: executions of one route are claimable by the same workers. The id is a hash of
-- the facts, so that every process and every shard derives it alone.
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

CREATE TABLE ff.exec_core (
    partition_key         smallint NOT NULL,
    attempt_index         integer NOT NULL DEFAULT 0,
    execution_id          uuid NOT NULL,
    route_id              bigint NOT NULL,
    created_at_ms         bigint NOT NULL,
    last_mutation_at_ms   bigint NOT NULL,
    lease_epoch           bigint NOT NULL DEFAULT 0,
    priority              integer NOT NULL DEFAULT 0,
    total_attempt_count   integer NOT NULL DEFAULT 0,
    retry_count           integer NOT NULL DEFAULT 0,
    replay_count          integer NOT NULL DEFAULT 0,
    lease_reclaim_count   integer NOT NULL DEFAULT 0,
    progress_pct          smallint,
    resume_pending        boolean NOT NULL DEFAULT false,
    lease_lost            boolean NOT NULL DEFAULT false,
    lifecycle_phase       text NOT NULL DEFAULT 'runnable',
    eligibility_state     text NOT NULL,
    blocking_reason       text NOT NULL,
    terminal_outcome      text NOT NULL DEFAULT 'none',
    attempt_state         text NOT NULL DEFAULT 'pending_first_attempt',
    ownership_state       text NOT NULL GENERATED ALWAYS AS (
        CASE WHEN lifecycle_phase = 'active' THEN 'leased' ELSE 'unowned' END) STORED,
    public_state          text NOT NULL GENERATED ALWAYS AS (
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
    tags                  jsonb NOT NULL DEFAULT '{}',
    flow_id               uuid,
    delay_until_ms        bigint,
    deadline_at_ms        bigint,
    started_at_ms         bigint,
    terminal_at_ms        bigint,
    lease_id              uuid,
    lease_expires_at_ms   bigint,
    attempt_started_at_ms bigint,
    attempt_timeout_at_ms bigint,
    attempt_type          text,
    worker_id             text,
    worker_instance_id    text,
    progress_message      text,
    blocking_detail       text,
    failure_reason        text,
    failure_category      text,
    cancellation_reason   text,
    cancelled_by          text,
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
        (eligibility_state = 'not_eligible_until_time') = (delay_until_ms IS NOT NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);

-- Claim order: best first within a route.
CREATE INDEX exec_core_claim ON ff.exec_core (route_id, priority DESC, created_at_ms, execution_id)
    WHERE eligibility_state = 'eligible_now';
CREATE INDEX exec_core_delayed ON ff.exec_core (delay_until_ms) WHERE delay_until_ms IS NOT NULL;
-- Which executions are leased, not until when: renewing a lease touches no indexed column.
CREATE INDEX exec_core_leased ON ff.exec_core (attempt_started_at_ms) WHERE lifecycle_phase = 'active';
CREATE INDEX exec_core_attempt_timeout ON ff.exec_core (attempt_timeout_at_ms)
    WHERE attempt_timeout_at_ms IS NOT NULL;
CREATE INDEX exec_core_deadline ON ff.exec_core (deadline_at_ms)
    WHERE deadline_at_ms IS NOT NULL AND lifecycle_phase <> 'terminal';
CREATE INDEX exec_core_flow ON ff.exec_core (partition_key, flow_id) WHERE flow_id IS NOT NULL;
-- Ends that somebody looks for; successes are found by time.
CREATE INDEX exec_core_not_success ON ff.exec_core (terminal_outcome, created_at_ms, execution_id)
    WHERE terminal_outcome IN ('failed', 'cancelled', 'expired', 'skipped');

-- What is given at create and never rewritten.
CREATE TABLE ff.exec_body (
    partition_key    smallint NOT NULL,
    execution_id     uuid NOT NULL,
    created_at_ms    bigint NOT NULL,
    payload          bytea NOT NULL,
    payload_encoding text,
    creator_identity text,
    idempotency_key  text,
    policy           jsonb,
    PRIMARY KEY (partition_key, execution_id)
);
CREATE INDEX exec_body_created ON ff.exec_body (created_at_ms, execution_id);

-- Executions by tag, newest first.
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

CREATE TABLE ff.exec_idempotency (
    partition_key   smallint NOT NULL,
    namespace       text NOT NULL,
    idempotency_key text NOT NULL,
    execution_id    uuid NOT NULL,
    expires_at_ms   bigint NOT NULL,
    PRIMARY KEY (partition_key, namespace, idempotency_key)
);

-- The ledger: one row per attempt, written when the attempt ends or is interrupted. The attempt
-- that runs now is described by its execution's row, which is the row the fence locks.
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
    PRIMARY KEY (partition_key, execution_id, attempt_index),
    CONSTRAINT attempt_attempt_type CHECK (attempt_type IN ('initial', 'retry', 'reclaim', 'replay')),
    CONSTRAINT attempt_outcome CHECK (
        outcome IN ('success', 'failed', 'retry', 'cancelled', 'expired', 'skipped', 'interrupted',
            'waiting_children', 'suspended', 'lease_expired_reclaimable', 'lease_revoked',
            'interrupted_reclaimed'))
);

-- Outboxes. One sequence each over all partitions, because readers need one contiguous order;
-- the execution's namespace, lane and kind are those of its route.
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
