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
COMMENT ON COLUMN ff.waiter.topic IS 'lane:<lane_id>, worker:<worker_instance_id>, attempt, completion, lease, operator or stream.';
COMMENT ON COLUMN ff.waiter.waiting_until_ms IS
    'When the registration expires. A process renews it while it waits.';

CREATE UNLOGGED TABLE ff.sweeper (
    standby            boolean PRIMARY KEY,
    worker_instance_id text NOT NULL,
    held_until_ms      bigint NOT NULL,
    session_pid        integer
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
COMMENT ON TABLE ff.sweeper IS
    'The process that runs the sweeps, and the one that takes over from it. Unlogged: without a row the next '
    'process that looks takes the role.';
COMMENT ON COLUMN ff.sweeper.standby IS 'False: this process sweeps. True: it takes over.';
COMMENT ON COLUMN ff.sweeper.held_until_ms IS
    'When the role is free again. Each look of the process moves it ahead.';
COMMENT ON COLUMN ff.sweeper.session_pid IS
    'Server process of a session that ends with the worker process: the role is free once it has ended. '
    'NULL if there is none, as behind a pooler.';

-- The words of the tables that most statements write. A CHECK constraint of a table is read and compiled anew by
-- every statement that writes a row, with all its words; the check of a domain is read once in a session, and
-- runs only where a value is assigned.

CREATE DOMAIN ff.lifecycle_phase AS text CONSTRAINT lifecycle_phase CHECK (VALUE IN (
    'runnable', 'suspended', 'terminal'));
CREATE DOMAIN ff.eligibility_state AS text CONSTRAINT eligibility_state CHECK (VALUE IN (
    'eligible_now', 'not_eligible_until_time', 'blocked_by_dependencies', 'blocked_by_budget',
    'blocked_by_quota', 'blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator',
    'not_applicable'));
CREATE DOMAIN ff.blocking_reason AS text CONSTRAINT blocking_reason CHECK (VALUE IN (
    'none', 'waiting_for_worker', 'waiting_for_retry_backoff', 'waiting_for_resume_delay',
    'waiting_for_delay', 'waiting_for_signal', 'waiting_for_approval', 'waiting_for_callback',
    'waiting_for_tool_result', 'waiting_for_children', 'waiting_for_budget', 'waiting_for_quota',
    'waiting_for_capable_worker', 'waiting_for_locality_match', 'paused_by_operator', 'paused_by_policy',
    'paused_by_flow_cancel'));
CREATE DOMAIN ff.terminal_outcome AS text CONSTRAINT terminal_outcome CHECK (VALUE IN (
    'none', 'success', 'failed', 'cancelled', 'expired', 'skipped'));
CREATE DOMAIN ff.attempt_state AS text CONSTRAINT attempt_state CHECK (VALUE IN (
    'none', 'pending_first_attempt', 'attempt_interrupted', 'pending_retry_attempt',
    'pending_replay_attempt', 'attempt_terminal'));
CREATE DOMAIN ff.attempt_type AS text CONSTRAINT attempt_type CHECK (VALUE IN (
    'initial', 'retry', 'reclaim', 'replay', 'restart'));
CREATE DOMAIN ff.attempt_outcome AS text CONSTRAINT attempt_outcome CHECK (VALUE IN (
    'success', 'failed', 'retry', 'cancelled', 'expired', 'skipped', 'interrupted', 'waiting_children',
    'suspended', 'restarted', 'lease_expired_reclaimable', 'lease_revoked', 'interrupted_reclaimed'));
CREATE DOMAIN ff.completion_outcome AS text CONSTRAINT completion_outcome CHECK (VALUE IN (
    'success', 'failed', 'cancelled', 'expired', 'skipped', 'resumable'));
CREATE DOMAIN ff.lease_event_type AS text CONSTRAINT lease_event_type CHECK (VALUE IN (
    'acquired', 'renewed', 'expired', 'reclaimed', 'revoked'));
CREATE DOMAIN ff.lease_event_reason AS text CONSTRAINT lease_event_reason CHECK (VALUE IN (
    'completed', 'failed', 'retry', 'delay', 'waiting_children', 'suspended', 'restarted', 'cancelled',
    'released', 'operator', 'disconnected'));
CREATE DOMAIN ff.journal_kind AS text CONSTRAINT journal_kind CHECK (VALUE IN (
    'step', 'now', 'patch', 'version', 'sleep', 'signal', 'waitpoint', 'wait', 'select', 'children',
    'compensation', 'mark'));
CREATE DOMAIN ff.journal_state AS text CONSTRAINT journal_state CHECK (VALUE IN (
    'open', 'done', 'failed'));
CREATE DOMAIN ff.edge_state AS text CONSTRAINT edge_state CHECK (VALUE IN (
    'pending', 'applied'));
CREATE DOMAIN ff.edge_resolution AS text CONSTRAINT edge_resolution CHECK (VALUE IN (
    'unresolved', 'satisfied', 'impossible'));
CREATE DOMAIN ff.resolved_outcome AS text CONSTRAINT resolved_outcome CHECK (VALUE IN (
    'success', 'failed', 'cancelled', 'expired', 'skipped'));
CREATE DOMAIN ff.group_policy_kind AS text CONSTRAINT group_policy_kind CHECK (VALUE IN (
    'all_of', 'any_of', 'quorum'));
CREATE DOMAIN ff.on_satisfied AS text CONSTRAINT on_satisfied CHECK (VALUE IN (
    'cancel_remaining', 'let_run'));
CREATE DOMAIN ff.group_state AS text CONSTRAINT group_state CHECK (VALUE IN (
    'pending', 'satisfied', 'impossible'));
CREATE DOMAIN ff.waits_as AS text CONSTRAINT waits_as CHECK (VALUE IN (
    'member', 'children'));
CREATE DOMAIN ff.sibling_cancel_reason AS text CONSTRAINT sibling_cancel_reason CHECK (VALUE IN (
    'sibling_quorum_satisfied', 'sibling_quorum_impossible', 'parent_ended'));
CREATE DOMAIN ff.flow_state AS text CONSTRAINT flow_state CHECK (VALUE IN (
    'open', 'cancelled'));
CREATE DOMAIN ff.cancellation_policy AS text CONSTRAINT cancellation_policy CHECK (VALUE IN (
    'cancel_flow_only', 'cancel_all', 'cancel_pending'));
CREATE DOMAIN ff.derived_flow_state AS text CONSTRAINT derived_flow_state CHECK (VALUE IN (
    'open', 'running', 'blocked', 'completed', 'failed', 'cancelled'));

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
    resume_pending                 boolean NOT NULL DEFAULT false,
    lease_lost                     boolean NOT NULL DEFAULT false,
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
    signal_seq                     integer NOT NULL DEFAULT 0,
    progress_pct                   smallint,
    flow_cancelled                 boolean NOT NULL DEFAULT false,
    compensates                    boolean NOT NULL DEFAULT false,
    lifecycle_phase                ff.lifecycle_phase NOT NULL DEFAULT 'runnable',
    eligibility_state              ff.eligibility_state NOT NULL,
    blocking_reason                ff.blocking_reason NOT NULL,
    terminal_outcome               ff.terminal_outcome NOT NULL DEFAULT 'none',
    attempt_state                  ff.attempt_state NOT NULL DEFAULT 'pending_first_attempt',
    exceptional_state              text GENERATED ALWAYS AS (
        CASE WHEN blocking_reason = 'paused_by_flow_cancel' THEN 'paused_by_flow_cancel'
            WHEN lifecycle_phase = 'runnable' THEN nullif(eligibility_state, 'eligible_now')
            WHEN lifecycle_phase = 'terminal' THEN nullif(terminal_outcome, 'success')
            ELSE lifecycle_phase
        END) STORED,
    tags                           jsonb NOT NULL DEFAULT '{}',
    flow_id                        uuid,
    delay_until_ms                 bigint,
    not_before_ms                  bigint,
    deadline_at_ms                 bigint,
    open_deadline_at_ms            bigint GENERATED ALWAYS AS (
        CASE WHEN lifecycle_phase <> 'terminal' THEN deadline_at_ms END) STORED,
    started_at_ms                  bigint,
    terminal_at_ms                 bigint,
    last_capability_mismatch_at_ms bigint,
    quota_key_id                   bigint,
    lease_id                       uuid,
    attempt_started_at_ms          bigint,
    attempt_type                   ff.attempt_type,
    progress_message               text,
    blocking_detail                text,
    failure_reason                 text,
    failure_category               text,
    cancellation_reason            text,
    cancelled_by                   text,
    budget_ids                     uuid[],
    CONSTRAINT exec_core_priority CHECK (priority BETWEEN 0 AND 9000),
    CONSTRAINT exec_core_runnable_is_eligible_or_blocked CHECK (
        (lifecycle_phase = 'runnable') = (eligibility_state <> 'not_applicable')),
    CONSTRAINT exec_core_terminal_has_an_outcome CHECK (
        (lifecycle_phase = 'terminal') = (terminal_outcome <> 'none')
        AND (lifecycle_phase = 'terminal') = (terminal_at_ms IS NOT NULL)),
    CONSTRAINT exec_core_delayed_until_an_instant CHECK (
        (eligibility_state = 'not_eligible_until_time') = (delay_until_ms IS NOT NULL)),
    CONSTRAINT exec_core_not_before_while_blocked CHECK (
        not_before_ms IS NULL OR eligibility_state IN ('blocked_by_dependencies', 'blocked_by_operator'))
) WITH (fillfactor = 46, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
-- The columns are in an order that leaves no gaps for alignment, so that 18 executions fit into a page, with
-- what they are at submit and at their end.
-- An execution that completes in the normal course changes no column of an index, and half of each page is
-- left for its new version: the update then writes no index (HOT). So no index here may name a column that
-- such an end changes, not even in its condition; exceptional_state and open_deadline_at_ms are for that.
CREATE INDEX exec_core_delayed ON ff.exec_core (delay_until_ms) WHERE delay_until_ms IS NOT NULL;
CREATE INDEX exec_core_deadline ON ff.exec_core (open_deadline_at_ms) WHERE open_deadline_at_ms IS NOT NULL;
CREATE INDEX exec_core_flow ON ff.exec_core (partition_key, flow_id) WHERE flow_id IS NOT NULL;
-- Executions that are delayed, blocked or suspended, or ended without success, by age within a route.
CREATE INDEX exec_core_exceptional ON ff.exec_core (exceptional_state, route_id, created_at_ms, execution_id)
    WHERE exceptional_state IS NOT NULL;
-- Executions that ended without success, by age: for searches by a text in the reason, in all routes.
CREATE INDEX exec_core_unsuccessful ON ff.exec_core (created_at_ms, execution_id)
    WHERE exceptional_state IN ('failed', 'cancelled', 'expired', 'skipped');
-- By age within a route: for searches, newest first, and for retention, oldest first.
CREATE INDEX exec_core_created ON ff.exec_core (route_id, created_at_ms, execution_id);
-- Those that were suspended and go on, in the queue or running; for searches, as exec_core_created.
CREATE INDEX exec_core_resumes ON ff.exec_core (route_id, created_at_ms, execution_id) WHERE resume_pending;
-- Those that had more than one attempt, or are about to; for searches, as exec_core_created.
CREATE INDEX exec_core_retried ON ff.exec_core (route_id, created_at_ms, execution_id) WHERE attempt_index > 0;
-- Members of a cancelled flow that are about to be ended.
CREATE INDEX exec_core_parked ON ff.exec_core (partition_key, flow_id)
    WHERE exceptional_state = 'paused_by_flow_cancel';
-- In the order of a hash: a sweep that reads a batch from a random hash on reaches every row equally.
CREATE INDEX exec_core_waits_for_others ON ff.exec_core (uuid_hash(execution_id))
    WHERE exceptional_state = 'blocked_by_dependencies';
-- Executions whose compensations are to be started.
CREATE INDEX exec_core_uncompensated ON ff.exec_core (created_at_ms)
    WHERE compensates AND exceptional_state IN ('failed', 'cancelled', 'expired', 'skipped');
-- Executions that a spent budget holds back, by the budgets that they are attached to; the best first.
CREATE INDEX exec_core_out_of_budget ON ff.exec_core (budget_ids, priority DESC, created_at_ms, execution_id)
    WHERE exceptional_state = 'blocked_by_budget';
-- Executions that the limit of their key holds back, by route, the best first.
CREATE INDEX exec_core_held_back
    ON ff.exec_core (quota_key_id, route_id, priority DESC, created_at_ms, execution_id)
    WHERE quota_key_id IS NOT NULL AND exceptional_state = 'blocked_by_quota';
-- The last index. While a table is empty, every index costs the same, and the planner takes the newest of
-- those that have a column in common with the condition: a lookup by key must not read another one whole.
ALTER TABLE ff.exec_core ADD PRIMARY KEY (partition_key, execution_id);
COMMENT ON TABLE ff.exec_core IS
    'One row per execution, written when it is created, when it is queued again, delayed or blocked, when its '
    'worker reports progress, and when it ends. A claim does not write it: an execution that a worker holds has '
    'a row in ff.lease beside this one, which is as the claim found it. ff.execution has both.';
COMMENT ON COLUMN ff.exec_core.attempt_index IS
    'Number of the last attempt, or of the attempt that the next claim starts.';
COMMENT ON COLUMN ff.exec_core.lease_epoch IS
    'Epoch of the last lease that has ended, more if that lease was voided. The lease that is held, if '
    'there is one, has the next epoch: ending a lease changes this column, so a call under a lease that has '
    'ended is refused by the row that the call locks.';
COMMENT ON COLUMN ff.exec_core.lease_reclaim_count IS 'Claims that followed a lost lease.';
COMMENT ON COLUMN ff.exec_core.infra_release_count IS
    'How often in a row the attempt was released because of trouble with the database.';
COMMENT ON COLUMN ff.exec_core.resume_pending IS
    'The execution was suspended and can go on; from its resume until its next claim.';
COMMENT ON COLUMN ff.exec_core.signal_seq IS
    'How many signals the inbox has received; the number of the last one.';
COMMENT ON COLUMN ff.exec_core.compensates IS
    'The handler has armed a compensation: unless the execution succeeds, its compensations run. False again '
    'once they are started.';
COMMENT ON COLUMN ff.exec_core.lease_lost IS
    'The last lease expired or was revoked; the next claim counts as a reclaim.';
COMMENT ON COLUMN ff.exec_core.flow_cancelled IS
    'The flow of the execution was cancelled while the execution ran: instead of being queued again, the '
    'execution is ended.';
COMMENT ON COLUMN ff.exec_core.exceptional_state IS
    'NULL in the normal course: while the execution waits for a worker or runs, and once it has succeeded. '
    'Else why not: eligibility_state, paused_by_flow_cancel, suspended, or terminal_outcome.';
COMMENT ON COLUMN ff.exec_core.quota_key_id IS
    'The key whose limit decides how many run at once and how fast they start: see ff.quota_key. Never changes.';
COMMENT ON COLUMN ff.exec_core.open_deadline_at_ms IS 'The deadline until the execution has ended.';
COMMENT ON COLUMN ff.exec_core.blocking_detail IS 'Why the execution is held back, in words.';
COMMENT ON COLUMN ff.exec_core.budget_ids IS
    'The budgets that the execution is attached to, in ascending order: while one of them is spent, the execution '
    'is held back. NULL: none. Never changes.';
COMMENT ON COLUMN ff.exec_core.delay_until_ms IS
    'Not claimable before this instant. Set exactly while the execution is delayed.';
COMMENT ON COLUMN ff.exec_core.not_before_ms IS
    'The delay of an execution that waits for dependencies; it applies once they are satisfied. On an '
    'execution blocked by an operator, a value means that it waits for dependencies as well.';
COMMENT ON COLUMN ff.exec_core.last_capability_mismatch_at_ms IS
    'When a claim grant was last refused because the worker lacks a capability.';
COMMENT ON COLUMN ff.exec_core.lease_id IS
    'Of the last lease that has ended, so that a repeated call of its holder is recognised.';
COMMENT ON COLUMN ff.exec_core.attempt_started_at_ms IS 'Of the last attempt that stopped running.';
COMMENT ON COLUMN ff.exec_core.failure_reason IS 'Why the last attempt failed, or why the execution ended.';
COMMENT ON COLUMN ff.exec_core.cancelled_by IS 'The source of the call; the name of the operator is in operator_event.';

CREATE TABLE ff.ready (
    route_id       bigint NOT NULL,
    created_at_ms  bigint NOT NULL,
    priority       integer NOT NULL,
    partition_key  smallint NOT NULL,
    execution_id   uuid NOT NULL,
    deadline_at_ms bigint,
    quota_key_id   bigint,
    queued_by      xid8,
    budget_ids     uuid[]
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_analyze_scale_factor = 0.2,
        autovacuum_vacuum_cost_limit = 2000);
-- Claim order: best first within a route. Also finds the row of an execution, whose columns these are.
CREATE UNIQUE INDEX ready_claim ON ff.ready (route_id, priority DESC, created_at_ms, execution_id, partition_key);
-- Those that are attached to budgets. Empty where nothing is: the claim then looks no further.
CREATE INDEX ready_budgets ON ff.ready (execution_id) WHERE budget_ids IS NOT NULL;
-- Those that have a limit, by key and route. Empty where nothing has one: the claim then looks no further.
CREATE INDEX ready_quota ON ff.ready (quota_key_id, route_id, priority DESC, created_at_ms, execution_id)
    WHERE quota_key_id IS NOT NULL;
COMMENT ON TABLE ff.ready IS
    'The queue: one row per execution that a worker can claim now. A row is inserted when an execution '
    'becomes claimable and deleted when it is claimed or not claimable any more, never updated: what a '
    'statement reads of the execution together with this row is up to date as long as the row is there.';
COMMENT ON COLUMN ff.ready.created_at_ms IS 'Of the execution.';
COMMENT ON COLUMN ff.ready.budget_ids IS 'Of the execution.';
COMMENT ON COLUMN ff.ready.quota_key_id IS 'Of the execution.';
COMMENT ON COLUMN ff.ready.queued_by IS
    'The transaction that inserted the row, of one with a limit; xmin may be a savepoint within it.';

CREATE TABLE ff.lease (
    partition_key         smallint NOT NULL,
    attempt_index         integer NOT NULL,
    execution_id          uuid NOT NULL,
    lease_id              uuid NOT NULL,
    lease_epoch           bigint NOT NULL,
    lease_expires_at_ms   bigint NOT NULL,
    last_mutation_at_ms   bigint NOT NULL,
    attempt_started_at_ms bigint NOT NULL,
    attempt_timeout_at_ms bigint,
    quota_key_id          bigint,
    lease_reclaim_count   integer NOT NULL,
    attempt_recorded      boolean NOT NULL,
    attempt_type          ff.attempt_type NOT NULL,
    worker_id             text NOT NULL,
    worker_instance_id    text NOT NULL,
    PRIMARY KEY (partition_key, execution_id)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_cost_limit = 2000);
-- The slots of a limit that are in use: the leases of its key.
CREATE INDEX lease_quota ON ff.lease (quota_key_id) WHERE quota_key_id IS NOT NULL;
COMMENT ON TABLE ff.lease IS
    'One row per execution that a worker holds, deleted when the lease ends. There are as many as handlers '
    'run and workers have claimed ahead, so sweeps read all of them. Renewals change no indexed column.';
COMMENT ON COLUMN ff.lease.attempt_index IS 'Number of the attempt that runs.';
COMMENT ON COLUMN ff.lease.lease_id IS 'Random, made by the caller of the claim.';
COMMENT ON COLUMN ff.lease.lease_epoch IS 'One more than lease_epoch of the execution in exec_core.';
COMMENT ON COLUMN ff.lease.attempt_started_at_ms IS
    'When the attempt began; an attempt that was interrupted keeps the instant of its first claim.';
COMMENT ON COLUMN ff.lease.quota_key_id IS 'Of the execution: the lease holds a slot of that key.';
COMMENT ON COLUMN ff.lease.attempt_timeout_at_ms IS 'When the running attempt times out.';
COMMENT ON COLUMN ff.lease.lease_reclaim_count IS 'Of the execution, with this claim if it followed a lost lease.';
COMMENT ON COLUMN ff.lease.attempt_recorded IS
    'The ledger has a row of this attempt already: the attempt was interrupted, or is made again.';
COMMENT ON COLUMN ff.lease.worker_id IS 'The pool of the worker that holds the lease.';
COMMENT ON COLUMN ff.lease.worker_instance_id IS 'The process that holds the lease.';

CREATE VIEW ff.execution AS
    SELECT e.partition_key, e.execution_id, e.route_id, e.flow_id, e.tags, e.priority, e.created_at_ms,
           greatest(e.last_mutation_at_ms, l.last_mutation_at_ms) AS last_mutation_at_ms,
           CASE WHEN l.lease_id IS NULL THEN e.lifecycle_phase ELSE 'active' END AS lifecycle_phase,
           CASE WHEN l.lease_id IS NULL THEN e.eligibility_state ELSE 'not_applicable' END AS eligibility_state,
           CASE WHEN l.lease_id IS NULL THEN e.blocking_reason ELSE 'none' END AS blocking_reason,
           CASE WHEN l.lease_id IS NULL THEN e.blocking_detail END AS blocking_detail,
           e.terminal_outcome, e.exceptional_state,
           CASE WHEN l.lease_id IS NULL THEN e.attempt_state ELSE 'running_attempt' END AS attempt_state,
           CASE WHEN l.lease_id IS NULL THEN 'unowned' ELSE 'leased' END AS ownership_state,
           CASE WHEN l.lease_id IS NOT NULL THEN 'active'
                WHEN e.lifecycle_phase = 'suspended' THEN 'suspended'
                WHEN e.lifecycle_phase = 'terminal' AND e.terminal_outcome = 'success' THEN 'completed'
                WHEN e.lifecycle_phase = 'terminal' AND e.terminal_outcome <> 'none' THEN e.terminal_outcome
                WHEN e.eligibility_state = 'eligible_now' AND e.resume_pending THEN 'resumable'
                WHEN e.eligibility_state = 'not_eligible_until_time' THEN 'delayed'
                WHEN e.eligibility_state = 'blocked_by_dependencies' THEN 'waiting_children'
                WHEN e.eligibility_state IN ('blocked_by_budget', 'blocked_by_quota') THEN 'rate_limited'
                ELSE 'waiting' END AS public_state,
           l.lease_id IS NOT NULL AS leased,
           coalesce(l.attempt_index, e.attempt_index) AS attempt_index,
           greatest(e.total_attempt_count, l.attempt_index + 1) AS total_attempt_count,
           e.retry_count, e.replay_count,
           coalesce(l.lease_reclaim_count, e.lease_reclaim_count) AS lease_reclaim_count,
           e.infra_release_count,
           e.progress_pct, e.progress_message,
           e.resume_pending AND l.lease_id IS NULL AS resume_pending,
           e.lease_lost AND l.lease_id IS NULL AS lease_lost,
           e.flow_cancelled, e.signal_seq, e.compensates, e.quota_key_id, e.budget_ids,
           e.delay_until_ms, e.not_before_ms, e.deadline_at_ms,
           coalesce(e.started_at_ms, l.attempt_started_at_ms) AS started_at_ms, e.terminal_at_ms,
           e.last_capability_mismatch_at_ms,
           coalesce(l.lease_epoch, e.lease_epoch) AS lease_epoch,
           coalesce(l.lease_id, e.lease_id) AS lease_id, l.lease_expires_at_ms,
           coalesce(l.attempt_started_at_ms, e.attempt_started_at_ms) AS attempt_started_at_ms,
           l.attempt_timeout_at_ms,
           coalesce(l.attempt_type, e.attempt_type) AS attempt_type,
           l.worker_id, l.worker_instance_id, e.failure_reason, e.failure_category, e.cancellation_reason,
           e.cancelled_by
      FROM ff.exec_core e
      -- ANY: by an equality, all leases can be read in the order of their key and compared with every row.
      LEFT JOIN ff.lease l
        ON l.partition_key = ANY (ARRAY[e.partition_key]) AND l.execution_id = e.execution_id
       AND l.lease_epoch = e.lease_epoch + 1;
COMMENT ON VIEW ff.execution IS
    'One row per execution as operations and people see it: exec_core, and the lease if a worker holds one. '
    'Without a lease, lifecycle_phase is runnable, suspended or terminal; with one it is active.';

CREATE TABLE ff.exec_body (
    created_at_ms    bigint NOT NULL,
    partition_key    smallint NOT NULL,
    execution_id     uuid NOT NULL,
    payload          bytea NOT NULL,
    payload_encoding text,
    creator_identity text,
    idempotency_key  text,
    policy           jsonb,
    member_name      text,
    quota_policy_id  uuid,
    quota_dimension  text,
    submitted_payload  bytea,
    submitted_encoding text,
    PRIMARY KEY (partition_key, execution_id)
);
COMMENT ON TABLE ff.exec_body IS
    'One row per execution: what was submitted. Transitions do not rewrite this row; the payload changes '
    'only when the result of an upstream is passed to the execution, or its handler restarts.';
COMMENT ON COLUMN ff.exec_body.payload IS
    'The arguments, or the result of an upstream that was passed to the execution.';
COMMENT ON COLUMN ff.exec_body.submitted_payload IS
    'What was submitted with the idempotency key, if payload is something else now: a repeated submit is '
    'compared with it.';
COMMENT ON COLUMN ff.exec_body.submitted_encoding IS 'The encoding of submitted_payload.';
COMMENT ON COLUMN ff.exec_body.policy IS 'Retries, timeouts and limits as they were at submit.';
COMMENT ON COLUMN ff.exec_body.member_name IS 'Name of the execution in its flow.';
COMMENT ON COLUMN ff.exec_body.quota_policy_id IS 'The limit of the execution; quota_key_id is computed from both.';
COMMENT ON COLUMN ff.exec_body.quota_dimension IS 'The key that the limit counts the execution under.';

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
    scope           text NOT NULL DEFAULT 'window',
    PRIMARY KEY (partition_key, namespace, idempotency_key),
    CONSTRAINT exec_idempotency_scope CHECK (scope IN ('window', 'started', 'ended'))
);
COMMENT ON TABLE ff.exec_idempotency IS
    'One row per idempotency key: the execution that a repeated submit returns until the key expires.';
COMMENT ON COLUMN ff.exec_idempotency.partition_key IS
    'ff.key_partition of namespace and key; the execution is in the same partition.';
COMMENT ON COLUMN ff.exec_idempotency.scope IS
    'How long the key belongs to the execution: until expires_at_ms, until it has started, or until it has ended.';
COMMENT ON COLUMN ff.exec_idempotency.expires_at_ms IS 'From then on the key can be used for another execution.';

CREATE TABLE ff.attempt (
    partition_key      smallint NOT NULL,
    attempt_index      integer NOT NULL,
    execution_id       uuid NOT NULL,
    lease_id           uuid NOT NULL,
    lease_epoch        bigint NOT NULL,
    started_at_ms      bigint NOT NULL,
    ended_at_ms        bigint NOT NULL,
    attempt_type       ff.attempt_type NOT NULL,
    outcome            ff.attempt_outcome NOT NULL,
    worker_id          text NOT NULL,
    worker_instance_id text NOT NULL,
    failure_reason     text,
    failure_category   text,
    failure_detail     text,
    result             bytea,
    result_encoding    text,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
);
COMMENT ON TABLE ff.attempt IS
    'One row per attempt that ended or was interrupted. The attempt that runs now is described by its row '
    'in ff.lease.';
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
    created_at_ms    bigint NOT NULL,
    occurred_at_ms   bigint NOT NULL,
    partition_key    smallint NOT NULL,
    outcome          ff.completion_outcome NOT NULL,
    flow_id          uuid,
    tags             jsonb,
    dispatched_at_ms bigint,
    PRIMARY KEY (event_id, partition_key)
);
-- For history, retention and joins, which know the execution; and for searches of completed executions, newest
-- first, which must not read the queue in front of them. It grows at the end of each route.
CREATE INDEX completion_event_created ON ff.completion_event (route_id, created_at_ms, execution_id);
-- For dispatch: completions of flow members that are not dispatched yet.
CREATE INDEX completion_event_undispatched ON ff.completion_event (event_id)
    WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL;
COMMENT ON TABLE ff.completion_event IS
    'Outbox of completions: one row each time an execution ends; a replayed execution has several. A row with '
    'outcome resumable says that a suspended execution can go on; no edge is resolved by such a row.';
COMMENT ON COLUMN ff.completion_event.event_id IS
    'Ascending, with gaps; not in the order of commits. Readers must resolve gaps.';
COMMENT ON COLUMN ff.completion_event.created_at_ms IS 'When the execution was created: searches sort by it.';
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
    event_type         ff.lease_event_type NOT NULL,
    reason             ff.lease_event_reason,
    worker_instance_id text NOT NULL,
    tags               jsonb,
    PRIMARY KEY (event_id, partition_key)
);
-- For history and retention, as on completion_event. A long execution has very many, which are read in pages.
CREATE INDEX lease_event_execution ON ff.lease_event (execution_id, event_id);
ALTER TABLE ff.lease_event ALTER COLUMN execution_id SET (n_distinct = -0.3);
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
            'key_rotated', 'resumed', 'woken', 'waitpoint_closed', 'waitpoint_answered', 'schedule_created', 'schedule_updated',
            'schedule_paused', 'schedule_resumed', 'schedule_triggered', 'schedule_backfilled',
            'schedule_deleted', 'budget_created', 'budget_limits_changed', 'budget_reset', 'budget_released', 'usage_reported', 'execution_tagged',
            'flow_tagged', 'worker_marked_dead', 'bulk_started', 'bulk_stopped', 'limit_created',
            'limit_changed', 'limit_deleted', 'token_created', 'token_revoked'))
);
CREATE INDEX operator_event_execution ON ff.operator_event (execution_id, event_id) WHERE execution_id IS NOT NULL;
CREATE INDEX operator_event_age ON ff.operator_event (occurred_at_ms) WHERE execution_id IS NULL;
COMMENT ON TABLE ff.operator_event IS
    'Outbox and audit trail of operator actions. An action on a lane, a flow or a key has no execution.';
COMMENT ON COLUMN ff.operator_event.lease_epoch IS
    'Of the execution after the action: its place among the lease events.';
COMMENT ON COLUMN ff.operator_event.partition_key IS 'Of the execution or flow, else 0.';
COMMENT ON COLUMN ff.operator_event.details IS 'The values before and after.';

CREATE TABLE ff.signal_event (
    event_id        bigint GENERATED ALWAYS AS IDENTITY,
    execution_id    uuid NOT NULL,
    signal_id       uuid NOT NULL,
    waitpoint_id    uuid,
    route_id        bigint NOT NULL,
    lease_epoch     bigint NOT NULL,
    occurred_at_ms  bigint NOT NULL,
    partition_key   smallint NOT NULL,
    signal_name     text NOT NULL,
    effect          text NOT NULL,
    source_type     text NOT NULL,
    source_identity text NOT NULL,
    tags            jsonb,
    PRIMARY KEY (event_id, partition_key),
    CONSTRAINT signal_event_effect CHECK (
        effect IN ('appended_to_waitpoint', 'resume_condition_satisfied', 'buffered_for_pending_waitpoint',
            'buffered_in_inbox'))
);
CREATE INDEX signal_event_execution ON ff.signal_event (execution_id, event_id);
COMMENT ON TABLE ff.signal_event IS
    'Outbox of signals: one row for each signal that was accepted. A duplicate writes none.';
COMMENT ON COLUMN ff.signal_event.lease_epoch IS
    'Of the execution when the signal arrived: for the order of events.';
COMMENT ON COLUMN ff.signal_event.waitpoint_id IS 'NULL for a signal that was sent by name, into the inbox.';
COMMENT ON COLUMN ff.signal_event.effect IS 'What the signal did when it arrived.';

-- Durable handlers: what a handler has done and waits for, its suspensions, waitpoints and signals.

CREATE TABLE ff.journal (
    partition_key  smallint NOT NULL,
    seq            integer NOT NULL,
    execution_id   uuid NOT NULL,
    attempt_index  integer NOT NULL,
    occurrence     integer NOT NULL DEFAULT 0,
    started_at_ms  bigint NOT NULL,
    recorded_at_ms bigint NOT NULL,
    due_at_ms      bigint,
    fingerprint    integer,
    signal_seq     integer,
    tries          smallint NOT NULL DEFAULT 1,
    kind           ff.journal_kind NOT NULL,
    state          ff.journal_state NOT NULL,
    name           text NOT NULL,
    item           text NOT NULL DEFAULT '',
    encoding       text,
    value          bytea,
    PRIMARY KEY (partition_key, execution_id, seq),
    CONSTRAINT journal_name CHECK (octet_length(name) BETWEEN 1 AND 128),
    CONSTRAINT journal_item CHECK (octet_length(item) <= 256)
);
COMMENT ON TABLE ff.journal IS
    'One row per durable call of a handler: a step, a sleep, a wait, a call for children. A finished entry '
    'never changes: when the handler runs again, the call returns what the entry holds.';
COMMENT ON COLUMN ff.journal.seq IS
    'In the order in which entries were first written, from 1; 0 is the mark: the generation of the journal, and the '
    'calls that a replay dropped before others that it kept. Negative: a '
    'compensation that was armed before the handler restarted; the lower the number, the later it was armed.';
COMMENT ON COLUMN ff.journal.attempt_index IS 'The attempt that recorded the entry.';
COMMENT ON COLUMN ff.journal.occurrence IS 'Number of the call among those with the same name and item, from 0.';
COMMENT ON COLUMN ff.journal.due_at_ms IS 'End of a sleep, timeout of a wait, or next try of a step.';
COMMENT ON COLUMN ff.journal.fingerprint IS 'crc32 of the encoded arguments; NULL where they do not encode.';
COMMENT ON COLUMN ff.journal.signal_seq IS 'Number, in the inbox, of the signal that the entry consumed.';
COMMENT ON COLUMN ff.journal.item IS 'What the caller gave as key=.';
COMMENT ON COLUMN ff.journal.value IS
    'What the call returned, or the error. Of a compensation the call to make; without a value such an entry '
    'disarms those before it.';
COMMENT ON COLUMN ff.journal.encoding IS 'Codec of the value; error where the entry has failed.';

CREATE TABLE ff.suspension_current (
    partition_key                 smallint NOT NULL,
    attempt_index                 integer NOT NULL,
    execution_id                  uuid NOT NULL,
    suspension_id                 uuid NOT NULL,
    suspended_at_ms               bigint NOT NULL,
    timeout_at_ms                 bigint,
    satisfied_at_ms               bigint,
    closed_at_ms                  bigint,
    closer_signal_id              uuid,
    timeout_behavior              text NOT NULL DEFAULT 'fail',
    reason_code                   text NOT NULL,
    requested_by                  text NOT NULL DEFAULT 'worker',
    close_reason                  text,
    continuation_metadata_pointer text,
    keeps_waitpoints              boolean NOT NULL DEFAULT false,
    awaits_signals                text[] NOT NULL DEFAULT '{}',
    awaits_joins                  uuid[] NOT NULL DEFAULT '{}',
    condition                     jsonb NOT NULL,
    resume_policy                 jsonb NOT NULL DEFAULT '{}',
    all_satisfier_signals         jsonb,
    PRIMARY KEY (partition_key, execution_id),
    CONSTRAINT suspension_current_timeout_behavior CHECK (
        timeout_behavior IN ('fail', 'cancel', 'expire', 'auto_resume_with_timeout_signal', 'escalate')),
    CONSTRAINT suspension_current_reason_code CHECK (
        reason_code IN ('waiting_for_signal', 'waiting_for_approval', 'waiting_for_callback',
            'waiting_for_tool_result', 'waiting_for_operator_review', 'paused_by_policy', 'paused_by_budget',
            'step_boundary', 'manual_pause')),
    CONSTRAINT suspension_current_requested_by CHECK (
        requested_by IN ('worker', 'operator', 'policy', 'system_timeout_policy')),
    CONSTRAINT suspension_current_closed_with_a_reason CHECK (
        (closed_at_ms IS NULL) = (close_reason IS NULL)),
    CONSTRAINT suspension_current_closed_has_no_timeout CHECK (
        closed_at_ms IS NULL OR timeout_at_ms IS NULL)
);
CREATE INDEX suspension_current_timeout ON ff.suspension_current (timeout_at_ms)
    WHERE timeout_at_ms IS NOT NULL;
CREATE INDEX suspension_current_open ON ff.suspension_current (partition_key, suspended_at_ms, execution_id)
    WHERE closed_at_ms IS NULL;
COMMENT ON TABLE ff.suspension_current IS
    'The last suspension of each execution that was suspended; open until closed_at_ms is set.';
COMMENT ON COLUMN ff.suspension_current.attempt_index IS 'The attempt that is suspended.';
COMMENT ON COLUMN ff.suspension_current.timeout_at_ms IS 'When the timeout behaviour applies; NULL once closed.';
COMMENT ON COLUMN ff.suspension_current.awaits_signals IS
    'Names of signals in the inbox, any of which resumes the execution.';
COMMENT ON COLUMN ff.suspension_current.awaits_joins IS
    'Joins of children (ff.edge_group.group_id), any of which resumes the execution when it is decided.';
COMMENT ON COLUMN ff.suspension_current.condition IS 'Which signals on waitpoints resume the execution.';
COMMENT ON COLUMN ff.suspension_current.keeps_waitpoints IS
    'A handler waits for several things: when it is resumed its waitpoints are pending again, instead of closed.';
COMMENT ON COLUMN ff.suspension_current.all_satisfier_signals IS 'The signals that satisfied the condition.';

CREATE TABLE ff.waitpoint_pending (
    partition_key                     smallint NOT NULL,
    attempt_index                     integer NOT NULL,
    waitpoint_id                      uuid NOT NULL,
    execution_id                      uuid NOT NULL,
    suspension_id                     uuid,
    created_at_ms                     bigint NOT NULL,
    activated_at_ms                   bigint,
    expires_at_ms                     bigint,
    closed_at_ms                      bigint,
    last_signal_at_ms                 bigint,
    last_hmac_validation_failed_at_ms bigint,
    signal_count                      integer NOT NULL DEFAULT 0,
    state                             text NOT NULL DEFAULT 'pending',
    waitpoint_key                     text NOT NULL,
    token_kid                         text NOT NULL,
    token                             text NOT NULL,
    close_reason                      text,
    required_signal_names             text[] NOT NULL DEFAULT '{}',
    signals                           jsonb NOT NULL DEFAULT '[]',
    answer_schema                     json,
    closed_as                         text GENERATED ALWAYS AS (
        CASE WHEN state <> 'closed' THEN NULL
             WHEN expires_at_ms <= closed_at_ms OR close_reason LIKE 'timed_out%' THEN 'expired'
             WHEN signal_count > 0 THEN 'answered' END) STORED,
    PRIMARY KEY (partition_key, waitpoint_id),
    CONSTRAINT waitpoint_pending_state CHECK (state IN ('pending', 'active', 'closed')),
    CONSTRAINT waitpoint_pending_closed_with_a_reason CHECK (
        (state = 'closed') = (closed_at_ms IS NOT NULL) AND (state = 'closed') = (close_reason IS NOT NULL)),
    CONSTRAINT waitpoint_pending_signals_are_a_list CHECK (jsonb_typeof(signals) = 'array')
);
CREATE INDEX waitpoint_pending_execution ON ff.waitpoint_pending (execution_id, waitpoint_id);
CREATE INDEX waitpoint_pending_expiry ON ff.waitpoint_pending (expires_at_ms) WHERE state = 'pending';
CREATE INDEX waitpoint_pending_closed ON ff.waitpoint_pending (closed_as, closed_at_ms, waitpoint_id)
    WHERE closed_as IS NOT NULL;
CREATE INDEX waitpoint_pending_open ON ff.waitpoint_pending (created_at_ms, waitpoint_id) WHERE state <> 'closed';
COMMENT ON TABLE ff.waitpoint_pending IS
    'One row per waitpoint: a place where an outsider with its token can signal an execution. Kept when '
    'closed, so that a late signal is told from a forged one; deleted with the execution.';
COMMENT ON COLUMN ff.waitpoint_pending.state IS
    'pending: created ahead, signals are buffered; active: an open suspension waits for it; closed.';
COMMENT ON COLUMN ff.waitpoint_pending.token IS 'kid:digest; shown to the holder of the lease and to operators.';
COMMENT ON COLUMN ff.waitpoint_pending.required_signal_names IS 'Empty: any name.';
COMMENT ON COLUMN ff.waitpoint_pending.signals IS
    'The signals that were accepted, in the order of their arrival; those of a pending waitpoint are buffered.';
COMMENT ON COLUMN ff.waitpoint_pending.answer_schema IS
    'JSON schema of the payload that people are asked for, its fields in their order; NULL: a comment.';
COMMENT ON COLUMN ff.waitpoint_pending.closed_as IS
    'expired: nobody answered in time; answered: a signal came first; NULL: open, or closed without either.';

CREATE TABLE ff.suspend_dedup (
    partition_key   smallint NOT NULL,
    execution_id    uuid NOT NULL,
    idempotency_key text NOT NULL,
    outcome         jsonb NOT NULL,
    created_at_ms   bigint NOT NULL,
    expires_at_ms   bigint NOT NULL,
    PRIMARY KEY (partition_key, execution_id, idempotency_key)
);
COMMENT ON TABLE ff.suspend_dedup IS
    'The answer of each suspend that had an idempotency key, without tokens; a repeated call gets it again.';

CREATE TABLE ff.signal_dedup (
    partition_key   smallint NOT NULL,
    waitpoint_id    uuid NOT NULL,
    idempotency_key text NOT NULL,
    signal_id       uuid NOT NULL,
    execution_id    uuid NOT NULL,
    expires_at_ms   bigint NOT NULL,
    PRIMARY KEY (partition_key, waitpoint_id, idempotency_key)
);
CREATE INDEX signal_dedup_execution ON ff.signal_dedup (execution_id);
COMMENT ON TABLE ff.signal_dedup IS
    'The signals to a waitpoint that had an idempotency key: a repeated one is a duplicate until it expires.';

CREATE TABLE ff.signal_inbox (
    partition_key   smallint NOT NULL,
    signal_seq      integer NOT NULL,
    execution_id    uuid NOT NULL,
    signal_id       uuid NOT NULL,
    accepted_at_ms  bigint NOT NULL,
    consumed        boolean NOT NULL DEFAULT false,
    signal_name     text NOT NULL,
    source_type     text NOT NULL,
    source_identity text NOT NULL,
    correlation_id  text NOT NULL DEFAULT '',
    idempotency_key text,
    encoding        text,
    payload         bytea,
    PRIMARY KEY (partition_key, execution_id, signal_seq),
    CONSTRAINT signal_inbox_signal_name CHECK (octet_length(signal_name) BETWEEN 1 AND 128)
);
CREATE UNIQUE INDEX signal_inbox_idempotency ON ff.signal_inbox (partition_key, execution_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
COMMENT ON TABLE ff.signal_inbox IS
    'Signals that were sent to an execution by name, in the order of their arrival. A handler consumes those '
    'of one name first in, first out; an entry of the journal names the signal that it consumed.';
COMMENT ON COLUMN ff.signal_inbox.consumed IS
    'Consumed by an entry of an earlier generation, which the journal does not have any more.';

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
    loop_blocked_ms    integer NOT NULL DEFAULT 0,
    liveness_lock      bigint,
    lock_missed_at_ms  bigint,
    version            text NOT NULL DEFAULT '',
    host               text NOT NULL DEFAULT '',
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
COMMENT ON COLUMN ff.worker_registry.loop_blocked_ms IS
    'How long a handler kept the event loop of the process from running anything before the last heartbeat.';
COMMENT ON COLUMN ff.worker_registry.version IS 'Version of the package that the process runs, or what its program says.';
COMMENT ON COLUMN ff.worker_registry.liveness_lock IS
    'Key of the advisory lock that the session of the process holds while the process lives; NULL: the '
    'process holds none, and its leases last until they expire.';
COMMENT ON COLUMN ff.worker_registry.lock_missed_at_ms IS
    'When a sweep first found the lock not held; NULL while the lock is held.';

-- After a restart of the server the sessions have ended and the processes live: they reconnect first.
CREATE VIEW ff.worker_liveness AS
    SELECT w.partition_key, w.namespace, w.worker_instance_id, w.lock_missed_at_ms,
           w.liveness_lock IN (
               SELECT (l.classid::bigint << 32) | l.objid::bigint FROM pg_catalog.pg_locks l
                WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
                  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                                     WHERE d.datname = pg_catalog.current_database()))
           OR pg_catalog.pg_postmaster_start_time()
              > pg_catalog.clock_timestamp() - interval '5 seconds' AS connected
      FROM ff.worker_registry w WHERE w.liveness_lock IS NOT NULL;
COMMENT ON VIEW ff.worker_liveness IS
    'The worker processes that hold an advisory lock while they live, and whether it is held now.';

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
    'Keys that sign grants and the tokens of waitpoints. One is active and signs; retired ones verify until they '
    'expire.';
COMMENT ON COLUMN ff.waitpoint_hmac.expires_at_ms IS
    'Until when a retired key verifies; NULL for the active one.';

CREATE TABLE ff.api_token (
    token_id        uuid PRIMARY KEY,
    token_hash      bytea NOT NULL,
    label           text NOT NULL,
    role            text NOT NULL,
    namespaces      text[] NOT NULL,
    hide_payloads   boolean NOT NULL,
    created_by      text NOT NULL,
    created_at_ms   bigint NOT NULL,
    expires_at_ms   bigint,
    last_used_at_ms bigint,
    revoked_at_ms   bigint,
    revoked_by      text,
    CONSTRAINT api_token_role CHECK (role IN ('reader', 'client', 'worker', 'operator', 'admin')),
    CONSTRAINT api_token_namespaces CHECK (cardinality(namespaces) > 0)
);
CREATE UNIQUE INDEX api_token_hash ON ff.api_token (token_hash);
COMMENT ON TABLE ff.api_token IS 'Tokens of the server: a hash of each, and what its holder may do.';
COMMENT ON COLUMN ff.api_token.token_hash IS 'SHA-256 of the token, which itself is stored nowhere.';
COMMENT ON COLUMN ff.api_token.namespaces IS 'The namespaces that the holder sees; * stands for all.';
COMMENT ON COLUMN ff.api_token.last_used_at_ms IS 'Exact to the minute.';

CREATE TABLE ff.web_session (
    session_id      uuid PRIMARY KEY,
    session_hash    bytea NOT NULL,
    token_hash      bytea NOT NULL,
    address         text NOT NULL,
    user_agent      text NOT NULL,
    opened_at_ms    bigint NOT NULL,
    last_seen_at_ms bigint NOT NULL,
    expires_at_ms   bigint NOT NULL,
    ends_at_ms      bigint NOT NULL,
    CONSTRAINT web_session_ends CHECK (expires_at_ms <= ends_at_ms)
);
CREATE UNIQUE INDEX web_session_hash ON ff.web_session (session_hash);
CREATE INDEX web_session_token ON ff.web_session (token_hash);
CREATE INDEX web_session_expiry ON ff.web_session (expires_at_ms);
COMMENT ON TABLE ff.web_session IS 'Sessions of browsers: each was opened by a token, and ends with it.';
COMMENT ON COLUMN ff.web_session.session_hash IS 'SHA-256 of the cookie, which itself is stored nowhere.';
COMMENT ON COLUMN ff.web_session.token_hash IS
    'SHA-256 of the token that opened it: one of api_token, or one that the server was started with.';
COMMENT ON COLUMN ff.web_session.expires_at_ms IS 'Moves ahead while the session is used, up to ends_at_ms.';

-- What ended, counted for charts.

CREATE TABLE ff.activity (
    step_ms      bigint NOT NULL,
    begins_at_ms bigint NOT NULL,
    route_id     bigint NOT NULL,
    outcome      text NOT NULL,
    ended        integer NOT NULL,
    waited       integer[] NOT NULL,
    ran          integer[] NOT NULL,
    PRIMARY KEY (step_ms, begins_at_ms, route_id, outcome),
    CONSTRAINT activity_outcome CHECK (outcome IN ('success', 'failed', 'cancelled', 'expired', 'skipped'))
);
CREATE INDEX activity_time ON ff.activity (begins_at_ms);
COMMENT ON TABLE ff.activity IS
    'How many executions of a route ended in each minute, and after a day in each hour, of the last 30 days.';
COMMENT ON COLUMN ff.activity.waited IS
    'Executions by how long they waited for their first start: two buckets for each doubling of a millisecond.';
COMMENT ON COLUMN ff.activity.ran IS 'Executions by how long their last attempt ran, as waited.';

CREATE TABLE ff.activity_place (
    singleton     boolean PRIMARY KEY DEFAULT true,
    event_id      bigint NOT NULL,
    next_event_id bigint NOT NULL,
    next_xid      bigint NOT NULL,
    CONSTRAINT activity_place_singleton CHECK (singleton)
);
COMMENT ON TABLE ff.activity_place IS 'Up to which completion event is counted.';
COMMENT ON COLUMN ff.activity_place.next_event_id IS
    'Up to here is counted next, once every transaction with an id below next_xid has ended.';

-- Changes of many executions, and saved searches.

CREATE TABLE ff.bulk_action (
    bulk_id          uuid PRIMARY KEY,
    namespace        text,
    action           text NOT NULL,
    arguments        jsonb NOT NULL,
    filter           jsonb NOT NULL,
    state            text NOT NULL,
    actor            text NOT NULL,
    reason           text NOT NULL,
    total            integer NOT NULL,
    done             integer NOT NULL DEFAULT 0,
    changed          integer NOT NULL DEFAULT 0,
    repeated         integer NOT NULL DEFAULT 0,
    refused          jsonb NOT NULL DEFAULT '{}',
    started_at_ms    bigint NOT NULL,
    last_batch_at_ms bigint,
    ended_at_ms      bigint,
    CONSTRAINT bulk_action_action CHECK (
        action IN ('cancel', 'replay', 'priority', 'block', 'unblock', 'tag', 'revoke', 'resume')),
    CONSTRAINT bulk_action_state CHECK (state IN ('running', 'stopped', 'done')),
    CONSTRAINT bulk_action_ended CHECK ((state = 'running') = (ended_at_ms IS NULL))
);
CREATE INDEX bulk_action_running ON ff.bulk_action (bulk_id) WHERE state = 'running';
COMMENT ON TABLE ff.bulk_action IS 'Changes of many executions: what is done, by whom, and how far it is.';
COMMENT ON COLUMN ff.bulk_action.namespace IS 'Of all its executions; NULL: of any.';
COMMENT ON COLUMN ff.bulk_action.filter IS 'What was searched for, in words; the executions themselves are in bulk_batch.';
COMMENT ON COLUMN ff.bulk_action.repeated IS 'How many executions were so before.';
COMMENT ON COLUMN ff.bulk_action.refused IS 'How many could not be changed, by the code of the error.';

CREATE TABLE ff.bulk_batch (
    bulk_id       uuid NOT NULL,
    batch_no      integer NOT NULL,
    execution_ids text[] NOT NULL,
    results       text[],
    PRIMARY KEY (bulk_id, batch_no)
);
COMMENT ON TABLE ff.bulk_batch IS 'The executions of a bulk action that change in one transaction.';
COMMENT ON COLUMN ff.bulk_batch.results IS
    'What became of each: changed, repeated, or the code of the error. NULL until the batch is done.';

CREATE TABLE ff.saved_query (
    query_id      uuid PRIMARY KEY,
    namespace     text NOT NULL,
    owner         text NOT NULL,
    shared        boolean NOT NULL,
    name          text NOT NULL,
    query         text NOT NULL,
    created_at_ms bigint NOT NULL
);
CREATE UNIQUE INDEX saved_query_name ON ff.saved_query (namespace, owner, name);
COMMENT ON TABLE ff.saved_query IS 'Searches that people have saved by a name.';
COMMENT ON COLUMN ff.saved_query.owner IS 'Who saved it, as the server names callers.';
COMMENT ON COLUMN ff.saved_query.shared IS 'True: everybody who sees the namespace may use it. False: its owner alone.';
COMMENT ON COLUMN ff.saved_query.query IS 'The parameters of the URL of the search.';

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
      FROM ff.claim_grant g JOIN ff.execution e USING (partition_key, execution_id)
     WHERE g.lease_epoch >= e.lease_epoch AND e.lifecycle_phase <> 'terminal';
COMMENT ON VIEW ff.unused_grant IS
    'Grants whose execution was not leased since they were issued, and has not ended; some have expired.';

-- Streams: the frames that running handlers append for readers, and the documents that they keep up to date.

CREATE TABLE ff.stream_frame (
    partition_key   smallint NOT NULL,
    attempt_index   integer NOT NULL,
    execution_id    uuid NOT NULL,
    ts_ms           bigint NOT NULL,
    ttl_ms          bigint,
    seq             integer NOT NULL,
    summary_version integer,
    mode            text NOT NULL,
    frame_type      text NOT NULL,
    correlation_id  text,
    payload         bytea NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index, ts_ms, seq),
    CONSTRAINT stream_frame_mode CHECK (mode IN ('durable', 'summary', 'best_effort')),
    CONSTRAINT stream_frame_frame_type CHECK (octet_length(frame_type) BETWEEN 1 AND 128),
    CONSTRAINT stream_frame_payload CHECK (octet_length(payload) <= 65536)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0.2);
COMMENT ON TABLE ff.stream_frame IS
    'One row per frame of a stream. A stream belongs to one attempt of one execution; its frames are read in '
    'the order of ts_ms and seq, which is the order in which they were committed.';
COMMENT ON COLUMN ff.stream_frame.ts_ms IS
    'When the frame was appended; never below that of the frame before it, also if the clock was set back.';
COMMENT ON COLUMN ff.stream_frame.seq IS 'Number of the frame among those of its millisecond, from 0.';
COMMENT ON COLUMN ff.stream_frame.ttl_ms IS 'For how long a best_effort frame is of use.';
COMMENT ON COLUMN ff.stream_frame.summary_version IS 'Version of the summary after a frame of mode summary.';
COMMENT ON COLUMN ff.stream_frame.payload IS 'The bytes; of a summary frame the JSON merge patch.';

CREATE TABLE ff.stream_meta (
    partition_key       smallint NOT NULL,
    attempt_index       integer NOT NULL,
    execution_id        uuid NOT NULL,
    append_id           uuid,
    created_at_ms       bigint NOT NULL,
    last_ts_ms          bigint NOT NULL DEFAULT 0,
    frame_count         bigint NOT NULL DEFAULT 0,
    total_bytes         bigint NOT NULL DEFAULT 0,
    last_seq            integer NOT NULL DEFAULT -1,
    retention_maxlen    integer NOT NULL,
    durable_kept        integer NOT NULL DEFAULT 0,
    summary_kept        integer NOT NULL DEFAULT 0,
    best_effort_kept    integer NOT NULL DEFAULT 0,
    has_durable_frame   boolean NOT NULL DEFAULT false,
    maxlen_applied_last integer,
    ema_rate_hz         double precision,
    last_append_ts_ms   bigint,
    best_effort_ttl_ms  bigint,
    expires_at_ms       bigint,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- Streams with best-effort frames that may be too old.
CREATE INDEX stream_meta_expiry ON ff.stream_meta (expires_at_ms) WHERE expires_at_ms IS NOT NULL;
COMMENT ON TABLE ff.stream_meta IS
    'One row per stream, made with its first frame. An append locks it until the commit, so the frames '
    'of a stream become visible in the order of their ids. Whether the stream is closed follows from the '
    'attempt: see ff.lease and ff.attempt.';
COMMENT ON COLUMN ff.stream_meta.append_id IS
    'Made by the caller of the last append, so that a call that is repeated after a lost answer is recognised.';
COMMENT ON COLUMN ff.stream_meta.last_ts_ms IS 'ts_ms of the last frame; last_seq is its seq.';
COMMENT ON COLUMN ff.stream_meta.frame_count IS 'Frames that were ever appended, also those that are deleted.';
COMMENT ON COLUMN ff.stream_meta.retention_maxlen IS
    'How many durable frames are kept: stream_policy.retention_maxlen of the policy, or 10000.';
COMMENT ON COLUMN ff.stream_meta.durable_kept IS
    'Durable frames that are stored now; summary_kept and best_effort_kept are those of the other modes.';
COMMENT ON COLUMN ff.stream_meta.has_durable_frame IS 'A durable or a summary frame was ever appended.';
COMMENT ON COLUMN ff.stream_meta.ema_rate_hz IS
    'Best-effort frames per second, as a moving average; last_append_ts_ms is when the last was appended.';
COMMENT ON COLUMN ff.stream_meta.maxlen_applied_last IS
    'How many best-effort frames were kept at the last append of one: as many as the rate asks for.';
COMMENT ON COLUMN ff.stream_meta.best_effort_ttl_ms IS 'ttl_ms of the last best-effort frame.';
COMMENT ON COLUMN ff.stream_meta.expires_at_ms IS
    'When the oldest best-effort frame may be deleted for its age; NULL if there is none, or a durable frame.';

CREATE TABLE ff.stream_summary (
    partition_key    smallint NOT NULL,
    attempt_index    integer NOT NULL,
    execution_id     uuid NOT NULL,
    first_applied_ms bigint NOT NULL,
    last_updated_ms  bigint NOT NULL,
    version          integer NOT NULL,
    patch_kind       text NOT NULL DEFAULT 'json-merge-patch',
    document_json    jsonb NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index),
    CONSTRAINT stream_summary_patch_kind CHECK (patch_kind = 'json-merge-patch')
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE ff.stream_summary IS
    'One row per stream that has had a summary frame: the document that all its patches have made.';
COMMENT ON COLUMN ff.stream_summary.version IS 'How many patches were merged.';

-- Flows: graphs of executions, their joins, and the cancellation of whole flows.

CREATE TABLE ff.flow_core (
    partition_key       smallint NOT NULL,
    flow_id             uuid NOT NULL,
    flow_kind           text NOT NULL,
    namespace           text NOT NULL,
    public_flow_state   ff.flow_state NOT NULL DEFAULT 'open',
    graph_revision      bigint NOT NULL DEFAULT 0,
    node_count          integer NOT NULL DEFAULT 0,
    edge_count          integer NOT NULL DEFAULT 0,
    created_at_ms       bigint NOT NULL,
    last_mutation_at_ms bigint NOT NULL,
    terminal_at_ms      bigint,
    cancel_reason       text,
    cancellation_policy ff.cancellation_policy,
    tags                jsonb NOT NULL DEFAULT '{}',
    graph_digest        bytea,
    CONSTRAINT flow_core_cancelled_at_an_instant CHECK (
        (public_flow_state = 'cancelled') = (terminal_at_ms IS NOT NULL)
        AND (public_flow_state = 'cancelled') = (cancellation_policy IS NOT NULL)),
    CONSTRAINT flow_core_revision CHECK (graph_revision = node_count + edge_count)
);
-- For lists, the newest first: of all flows, of one namespace, of one partition.
CREATE INDEX flow_core_created ON ff.flow_core (created_at_ms, flow_id);
CREATE INDEX flow_core_namespace ON ff.flow_core (namespace, created_at_ms, flow_id);
CREATE INDEX flow_core_partition ON ff.flow_core (partition_key, created_at_ms, flow_id);
-- Flows that never got a member.
CREATE INDEX flow_core_empty ON ff.flow_core (last_mutation_at_ms) WHERE node_count = 0;
ALTER TABLE ff.flow_core ADD PRIMARY KEY (partition_key, flow_id);  -- the last index, as on exec_core
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
    edge_state        ff.edge_state NOT NULL DEFAULT 'pending',
    resolution        ff.edge_resolution NOT NULL DEFAULT 'unresolved',
    resolved_outcome  ff.resolved_outcome,
    dependency_kind   text NOT NULL DEFAULT 'success_only',
    created_by        text NOT NULL DEFAULT 'engine',
    data_passing_ref  text,
    PRIMARY KEY (partition_key, flow_id, edge_id),
    CONSTRAINT edge_dependency_kind CHECK (dependency_kind = 'success_only'),
    CONSTRAINT edge_resolved_by_an_outcome CHECK ((resolution = 'unresolved') = (resolved_outcome IS NULL)),
    CONSTRAINT edge_resolves_once_applied CHECK (resolution = 'unresolved' OR edge_state = 'applied')
) WITH (fillfactor = 50);
-- Half of each page is left for the new version of an edge that is resolved: it writes no index (HOT).
-- Execution ids ascend with time, so these indexes grow at their end. A lookup by one of the two columns has
-- no other index to choose, however small the table was when its plan was made. With the counts of ANALYZE
-- for a wide flow, one upstream for all edges, the primary key would seem as good: its partition, read whole.
CREATE UNIQUE INDEX edge_pair ON ff.edge (upstream_eid, partition_key, group_id);
CREATE INDEX edge_group_edges ON ff.edge (group_id);
ALTER TABLE ff.edge ALTER COLUMN upstream_eid SET (n_distinct = -1), ALTER COLUMN group_id SET (n_distinct = -1);
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
    waits_as                        ff.waits_as NOT NULL,
    policy_kind                     ff.group_policy_kind NOT NULL DEFAULT 'all_of',
    group_state                     ff.group_state NOT NULL DEFAULT 'pending',
    on_satisfied                    ff.on_satisfied,
    cancel_siblings_reason          ff.sibling_cancel_reason,
    cancel_siblings_pending_members uuid[],
    cancel_siblings_pending_losers  uuid[],
    PRIMARY KEY (partition_key, group_id),
    CONSTRAINT edge_group_k CHECK ((policy_kind = 'quorum') = (k IS NOT NULL) AND k >= 1),
    CONSTRAINT edge_group_disposition CHECK ((policy_kind = 'all_of') = (on_satisfied IS NULL)),
    CONSTRAINT edge_group_counts CHECK (
        success_count >= 0 AND fail_count >= 0 AND skip_count >= 0 AND running_count >= 0),
    CONSTRAINT edge_group_fires_once CHECK ((group_state = 'pending') = (fired_at_ms IS NULL))
) WITH (fillfactor = 50);
-- As on edge: a parent that waits for each of its children alone has a join for each.
CREATE INDEX edge_group_waiter ON ff.edge_group (waiter_eid, partition_key);
ALTER TABLE ff.edge_group ALTER COLUMN waiter_eid SET (n_distinct = -1);
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
    public_flow_state        ff.derived_flow_state NOT NULL,
    last_summary_update_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id)
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

-- Budgets: what work may use, what it has used, and which execution has used it.

CREATE TABLE ff.budget_policy (
    partition_key     smallint NOT NULL,
    budget_id         uuid NOT NULL,
    scope_type        text NOT NULL,
    scope_id          text NOT NULL,
    enforcement_mode  text NOT NULL,
    policy_json       jsonb NOT NULL,
    breach_count      bigint NOT NULL DEFAULT 0,
    soft_breach_count bigint NOT NULL DEFAULT 0,
    last_breach_at_ms bigint,
    last_breach_dim   text,
    next_reset_at_ms  bigint,
    last_reset_at_ms  bigint,
    reset_count       bigint NOT NULL DEFAULT 0,
    period_no         bigint NOT NULL DEFAULT 0,
    created_at_ms     bigint NOT NULL,
    updated_at_ms     bigint NOT NULL,
    PRIMARY KEY (partition_key, budget_id),
    CONSTRAINT budget_policy_enforcement_mode CHECK (enforcement_mode IN ('strict', 'warn'))
) WITH (fillfactor = 50);
CREATE INDEX budget_policy_reset ON ff.budget_policy (next_reset_at_ms) WHERE next_reset_at_ms IS NOT NULL;
COMMENT ON TABLE ff.budget_policy IS
    'One row per budget. Its lock is taken by everything that changes the usage, the ledger or the period.';
COMMENT ON COLUMN ff.budget_policy.scope_type IS 'A label of what is limited, such as tenant; not read by the engine.';
COMMENT ON COLUMN ff.budget_policy.policy_json IS
    'hard_limits and soft_limits by dimension (0: no limit), reset_interval_ms (0: never), and the labels '
    'on_hard_limit and on_soft_limit.';
COMMENT ON COLUMN ff.budget_policy.breach_count IS
    'How often a report would have passed a hard limit, since the budget was created.';
COMMENT ON COLUMN ff.budget_policy.soft_breach_count IS
    'Reports after which a dimension was over its soft limit, since the budget was created.';
COMMENT ON COLUMN ff.budget_policy.last_breach_dim IS 'The dimension of the last hard breach of this period.';
COMMENT ON COLUMN ff.budget_policy.next_reset_at_ms IS 'NULL: the budget is not periodic.';
COMMENT ON COLUMN ff.budget_policy.period_no IS 'Grows with every reset; the ledger has it too.';

CREATE TABLE ff.budget_usage (
    partition_key    smallint NOT NULL,
    budget_id        uuid NOT NULL,
    dimensions_key   text COLLATE "C" NOT NULL,
    current_value    bigint NOT NULL,
    last_reset_at_ms bigint,
    updated_at_ms    bigint NOT NULL,
    PRIMARY KEY (partition_key, budget_id, dimensions_key),
    CONSTRAINT budget_usage_not_negative CHECK (current_value >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE ff.budget_usage IS
    'One row per budget and dimension: how much was used in this period. Also of budgets that nobody has created.';
COMMENT ON COLUMN ff.budget_usage.dimensions_key IS 'The name of the dimension, such as tokens.';

CREATE TABLE ff.budget_usage_dedup (
    partition_key smallint NOT NULL,
    budget_id     uuid NOT NULL,
    dedup_key     text NOT NULL,
    outcome_json  jsonb,
    applied_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, budget_id, dedup_key)
);
CREATE INDEX budget_usage_dedup_expiry ON ff.budget_usage_dedup (expires_at_ms);
COMMENT ON TABLE ff.budget_usage_dedup IS
    'One row per report that was counted under a key: within 24 hours the key does not count again.';
COMMENT ON COLUMN ff.budget_usage_dedup.dedup_key IS 'Of the caller; keys of the ledger begin with spend:.';
COMMENT ON COLUMN ff.budget_usage_dedup.outcome_json IS 'The answer of the first call.';

CREATE TABLE ff.budget_usage_by_exec (
    partition_key       smallint NOT NULL,
    budget_id           uuid NOT NULL,
    execution_partition smallint NOT NULL,
    execution_id        uuid NOT NULL,
    dimensions_key      text COLLATE "C" NOT NULL,
    delta_total         bigint NOT NULL,
    period_no           bigint NOT NULL,
    updated_at_ms       bigint NOT NULL,
    unsettled           boolean NOT NULL DEFAULT true,
    PRIMARY KEY (partition_key, budget_id, execution_id, execution_partition, dimensions_key)
);
CREATE INDEX budget_usage_by_exec_execution ON ff.budget_usage_by_exec (execution_id);
-- In the order of a hash: a sweep that reads a batch from a random hash on reaches every row equally.
CREATE INDEX budget_usage_by_exec_unsettled ON ff.budget_usage_by_exec (uuid_hash(execution_id)) WHERE unsettled;
COMMENT ON TABLE ff.budget_usage_by_exec IS
    'The ledger: what each execution has spent of a budget by record_spend, so that it can be given back.';
COMMENT ON COLUMN ff.budget_usage_by_exec.execution_partition IS 'The partition of the execution.';
COMMENT ON COLUMN ff.budget_usage_by_exec.period_no IS
    'The period of the budget that the amount belongs to. After a reset the amount is not in the usage any more.';
COMMENT ON COLUMN ff.budget_usage_by_exec.unsettled IS
    'The execution has not been seen to have ended: if it loses a race, the amount is given back.';

CREATE TABLE ff.budget_usage_history (
    partition_key  smallint NOT NULL,
    budget_id      uuid NOT NULL,
    dimensions_key text COLLATE "C" NOT NULL,
    begins_at_ms   bigint NOT NULL,
    step_ms        bigint NOT NULL,
    used           bigint NOT NULL,
    peak           bigint NOT NULL,
    PRIMARY KEY (partition_key, budget_id, dimensions_key, begins_at_ms, step_ms)
);
CREATE INDEX budget_usage_history_age ON ff.budget_usage_history (step_ms, begins_at_ms);
COMMENT ON TABLE ff.budget_usage_history IS
    'How much of a budget was used in each minute, and after a day in each hour, of the last 30 days. A minute in '
    'which the usage stayed as it was has no row.';
COMMENT ON COLUMN ff.budget_usage_history.step_ms IS 'A minute or an hour.';
COMMENT ON COLUMN ff.budget_usage_history.used IS 'The usage when it was looked at last.';
COMMENT ON COLUMN ff.budget_usage_history.peak IS 'The highest usage that was seen.';

CREATE TABLE ff.budget_usage_place (
    singleton      boolean PRIMARY KEY DEFAULT true,
    noted_up_to_ms bigint NOT NULL,
    CONSTRAINT budget_usage_place_singleton CHECK (singleton)
);
COMMENT ON TABLE ff.budget_usage_place IS 'Up to which instant the usage of budgets is in budget_usage_history.';

-- Schedules: what is executed again and again, and what became of each instant.

CREATE TABLE ff.schedule (
    partition_key         smallint NOT NULL,
    namespace             text NOT NULL,
    name                  text NOT NULL,
    spec_kind             text NOT NULL,
    cron                  text,
    tz                    text NOT NULL,
    every_ms              bigint,
    anchor_ms             bigint,
    at_ms                 bigint,
    execution_kind        text NOT NULL,
    lane_id               text NOT NULL,
    payload               bytea NOT NULL,
    payload_encoding      text,
    priority              integer NOT NULL,
    policy                jsonb,
    tags                  jsonb NOT NULL,
    required_capabilities text[] NOT NULL,
    limit_name            text,
    limit_key             text,
    overlap               text NOT NULL,
    catch_up              integer NOT NULL,
    catch_up_window_ms    bigint NOT NULL,
    jitter_ms             bigint NOT NULL,
    starts_at_ms          bigint,
    until_ms              bigint,
    runs                  integer,
    runs_left             integer,
    next_fire_at_ms       bigint,
    last_fire_at_ms       bigint,
    fired                 bigint NOT NULL DEFAULT 0,
    skipped               bigint NOT NULL DEFAULT 0,
    missed                bigint NOT NULL DEFAULT 0,
    state                 text NOT NULL DEFAULT 'active',
    state_by              text,
    state_reason          text,
    state_changed_at_ms   bigint,
    source                text NOT NULL,
    created_at_ms         bigint NOT NULL,
    created_by            text NOT NULL,
    revision              bigint NOT NULL DEFAULT 1,
    edited_by             text,
    latest_partitions     smallint[] NOT NULL DEFAULT '{}',
    latest_ids            uuid[] NOT NULL DEFAULT '{}',
    queued                boolean NOT NULL DEFAULT false,
    PRIMARY KEY (partition_key, namespace, name),
    CONSTRAINT schedule_spec_kind CHECK (spec_kind IN ('cron', 'interval', 'once')),
    CONSTRAINT schedule_spec CHECK (
        (spec_kind = 'cron') = (cron IS NOT NULL)
        AND (spec_kind = 'interval') = (every_ms IS NOT NULL AND anchor_ms IS NOT NULL)
        AND (spec_kind = 'once') = (at_ms IS NOT NULL)),
    CONSTRAINT schedule_overlap CHECK (
        overlap IN ('allow', 'skip', 'queue_one', 'queue_all', 'cancel_running')),
    CONSTRAINT schedule_state CHECK (state IN ('active', 'paused', 'finished', 'broken')),
    CONSTRAINT schedule_source CHECK (source IN ('code', 'api')),
    CONSTRAINT schedule_name CHECK (octet_length(name) BETWEEN 1 AND 256),
    CONSTRAINT schedule_active_has_a_next CHECK (state <> 'active' OR next_fire_at_ms IS NOT NULL)
) WITH (fillfactor = 70);
CREATE INDEX schedule_due ON ff.schedule (next_fire_at_ms) WHERE state = 'active';
CREATE INDEX schedule_queued ON ff.schedule (name) WHERE queued;
-- Schedules that may have more rows in the ledger than are kept.
CREATE INDEX schedule_busy ON ff.schedule (name) WHERE fired + skipped + missed > 1000;
CREATE INDEX schedule_list ON ff.schedule (namespace, name);
COMMENT ON TABLE ff.schedule IS
    'One row per schedule: when it fires, what it executes, and what it has done so far.';
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
COMMENT ON COLUMN ff.schedule.next_fire_at_ms IS
    'The next instant, or the first that is not fired yet. A paused schedule keeps its own.';
COMMENT ON COLUMN ff.schedule.missed IS 'Instants that nobody fired in time and that were not caught up.';
COMMENT ON COLUMN ff.schedule.state_reason IS 'Why it is paused, or the error of a broken one.';
COMMENT ON COLUMN ff.schedule.source IS 'Defined by an application, or through the client or ff.';
COMMENT ON COLUMN ff.schedule.edited_by IS
    'Who gave a schedule from code another definition by hand; NULL: it is as code defines it.';
COMMENT ON COLUMN ff.schedule.revision IS
    'One more with every change and firing: a firing compares it, so of two processes one fires.';
COMMENT ON COLUMN ff.schedule.latest_ids IS
    'The last ten executions, oldest first, and older ones that wait for their turn. Their partitions are in '
    'latest_partitions.';
COMMENT ON COLUMN ff.schedule.queued IS 'One of them may wait until an earlier one has ended.';

CREATE TABLE ff.schedule_fire (
    partition_key  smallint NOT NULL,
    namespace      text NOT NULL,
    name           text NOT NULL,
    fire_at_ms     bigint NOT NULL,
    trigger_id     uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    outcome        text NOT NULL,
    execution_id   uuid,
    execution_partition smallint,
    recorded_at_ms bigint NOT NULL,
    reason         text,
    PRIMARY KEY (partition_key, namespace, name, fire_at_ms, trigger_id),
    CONSTRAINT schedule_fire_outcome CHECK (
        outcome IN ('fired', 'triggered', 'backfilled', 'skipped', 'missed', 'refused')),
    CONSTRAINT schedule_fire_execution CHECK ((execution_id IS NULL) = (execution_partition IS NULL))
);
CREATE INDEX schedule_fire_age ON ff.schedule_fire (recorded_at_ms);
COMMENT ON TABLE ff.schedule_fire IS
    'One row per instant of a schedule: what became of it. Kept for 30 days, and of each schedule the newest 1,000.';
COMMENT ON COLUMN ff.schedule_fire.fire_at_ms IS 'The instant; of a trigger, when it was called.';
COMMENT ON COLUMN ff.schedule_fire.trigger_id IS 'Of a trigger its own id, else zero.';
COMMENT ON COLUMN ff.schedule_fire.execution_id IS 'The execution that was created.';
COMMENT ON COLUMN ff.schedule_fire.reason IS 'Why the instant was not fired.';

-- Limits: how many executions of a key run at once, and how many start in a window of time.

CREATE TABLE ff.quota_policy (
    partition_key           smallint NOT NULL,
    quota_policy_id         uuid NOT NULL,
    namespace               text NOT NULL,
    name                    text,
    window_ms               bigint NOT NULL,
    max_requests_per_window integer NOT NULL,
    active_concurrency_cap  integer NOT NULL,
    jitter_ms               bigint NOT NULL DEFAULT 0,
    created_at_ms           bigint NOT NULL,
    updated_at_ms           bigint NOT NULL,
    PRIMARY KEY (partition_key, quota_policy_id),
    CONSTRAINT quota_policy_limits CHECK (
        window_ms >= 0 AND max_requests_per_window >= 0 AND active_concurrency_cap >= 0 AND jitter_ms >= 0
        AND (window_ms > 0 OR max_requests_per_window = 0))
);
CREATE INDEX quota_policy_id ON ff.quota_policy (quota_policy_id);
CREATE INDEX quota_policy_name ON ff.quota_policy (namespace, name);
CREATE INDEX quota_policy_window ON ff.quota_policy (window_ms);
COMMENT ON TABLE ff.quota_policy IS
    'One row per limit. Its numbers hold for each key apart, and 0 means that there is no such limit.';
COMMENT ON COLUMN ff.quota_policy.partition_key IS 'Hash of quota_policy_id modulo num_quota_partitions.';
COMMENT ON COLUMN ff.quota_policy.quota_policy_id IS
    'Computed from namespace and name; of a limit without a name, as its creator gave it.';
COMMENT ON COLUMN ff.quota_policy.max_requests_per_window IS 'How many executions of a key may start in any window_ms.';
COMMENT ON COLUMN ff.quota_policy.active_concurrency_cap IS 'How many executions of a key may run at once.';
COMMENT ON COLUMN ff.quota_policy.jitter_ms IS 'Up to so much is added to the time after which check_admission says to ask again.';

CREATE TABLE ff.quota_key (
    partition_key   smallint NOT NULL,
    quota_key_id    bigint NOT NULL,
    quota_policy_id uuid NOT NULL,
    dimension       text NOT NULL,
    next_at_ms      bigint,
    PRIMARY KEY (partition_key, quota_key_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX quota_key_next ON ff.quota_key (next_at_ms) WHERE next_at_ms IS NOT NULL;
CREATE INDEX quota_key_policy ON ff.quota_key (quota_policy_id, quota_key_id);
COMMENT ON TABLE ff.quota_key IS
    'One row per key of a limit that a claim has seen. A claim that gives out a slot or a start of the key locks it '
    'first. The slots in use are the leases of the key: there is no counter.';
COMMENT ON COLUMN ff.quota_key.partition_key IS 'quota_key_id modulo num_flow_partitions.';
COMMENT ON COLUMN ff.quota_key.quota_key_id IS 'ff.quota_key_id of quota_policy_id and dimension.';
COMMENT ON COLUMN ff.quota_key.dimension IS 'The key in words.';
COMMENT ON COLUMN ff.quota_key.next_at_ms IS 'When executions that are held back can be let go; NULL if no instant is known.';

CREATE TABLE ff.quota_window (
    partition_key  smallint NOT NULL,
    quota_key_id   bigint NOT NULL,
    admitted_at_ms bigint NOT NULL,
    start_no       bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (partition_key, quota_key_id, admitted_at_ms, start_no)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX quota_window_age ON ff.quota_window (admitted_at_ms);
COMMENT ON TABLE ff.quota_window IS
    'One row per start that a limit with a rate counts; deleted some time after its window has passed.';

CREATE TABLE ff.quota_admitted (
    partition_key       smallint NOT NULL,
    quota_key_id        bigint NOT NULL,
    quota_policy_id     uuid NOT NULL,
    execution_id        uuid NOT NULL,
    execution_partition smallint NOT NULL,
    admitted_at_ms      bigint NOT NULL,
    start_no            bigint,
    expires_at_ms       bigint NOT NULL,
    released_at_ms      bigint,
    lease_epoch         bigint,
    PRIMARY KEY (partition_key, quota_key_id, execution_id)
);
CREATE INDEX quota_admitted_key ON ff.quota_admitted (quota_key_id);
CREATE INDEX quota_admitted_execution ON ff.quota_admitted (execution_id);
CREATE INDEX quota_admitted_expiry ON ff.quota_admitted (expires_at_ms);
COMMENT ON TABLE ff.quota_admitted IS
    'One row per execution and key that check_admission has admitted, until it has expired.';
COMMENT ON COLUMN ff.quota_admitted.start_no IS 'Its row in quota_window; NULL if the limit has no rate.';
COMMENT ON COLUMN ff.quota_admitted.released_at_ms IS
    'When its slot was given back. The row is kept for its window: an execution that is admitted again counts once.';
COMMENT ON COLUMN ff.quota_admitted.lease_epoch IS
    'That of the execution when it was admitted, if it existed: another epoch says that it has run, and gave up its slot.';
COMMENT ON COLUMN ff.quota_admitted.expires_at_ms IS 'Until then the execution is admitted without being counted again.';

CREATE TABLE ff.quota_wakeup (
    partition_key smallint NOT NULL,
    wakeup_id     bigint GENERATED ALWAYS AS IDENTITY,
    quota_key_id  bigint NOT NULL,
    PRIMARY KEY (partition_key, wakeup_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE ff.quota_wakeup IS
    'Keys of executions that left the queue or lost their lease without a worker that lets others of the key '
    'go. A sweep does, and deletes the rows.';
COMMENT ON COLUMN ff.quota_wakeup.partition_key IS 'Of the execution.';
