-- backward_compatible
-- Flows: graphs of executions, what each waits for, and how they are cancelled as a whole.

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
    PRIMARY KEY (partition_key, flow_id),
    CONSTRAINT flow_core_public_flow_state CHECK (public_flow_state IN ('open', 'cancelled')),
    CONSTRAINT flow_core_cancellation_policy CHECK (
        cancellation_policy IN ('cancel_flow_only', 'cancel_all', 'cancel_pending')),
    CONSTRAINT flow_core_cancelled_at_an_instant CHECK (
        (public_flow_state = 'cancelled') = (terminal_at_ms IS NOT NULL)
        AND (public_flow_state = 'cancelled') = (cancellation_policy IS NOT NULL)),
    CONSTRAINT flow_core_revision CHECK (graph_revision = node_count + edge_count)
);

-- An edge gates its downstream from the moment it is applied; how it was resolved is the ledger
-- of which the group's counters are a cache.
CREATE TABLE ff.edge (
    partition_key     smallint NOT NULL,
    flow_id           uuid NOT NULL,
    edge_id           uuid NOT NULL,
    upstream_eid      uuid NOT NULL,
    downstream_eid    uuid NOT NULL,
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
    CONSTRAINT edge_resolves_once_applied CHECK (resolution = 'unresolved' OR edge_state = 'applied'),
    CONSTRAINT edge_no_loop CHECK (upstream_eid <> downstream_eid)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX edge_pair ON ff.edge (partition_key, upstream_eid, downstream_eid);
CREATE INDEX edge_downstream ON ff.edge (partition_key, downstream_eid);

-- What one execution waits for. `wakes` is set where the group belongs to a running execution that
-- waits for children of its own: `downstream_eid` is then the name of the wait.
CREATE TABLE ff.edge_group (
    partition_key                   smallint NOT NULL,
    flow_id                         uuid NOT NULL,
    downstream_eid                  uuid NOT NULL,
    fired_at_ms                     bigint,
    k                               integer,
    expected_n                      integer,
    success_count                   integer NOT NULL DEFAULT 0,
    fail_count                      integer NOT NULL DEFAULT 0,
    skip_count                      integer NOT NULL DEFAULT 0,
    running_count                   integer NOT NULL DEFAULT 0,
    cancel_siblings_pending_flag    boolean NOT NULL DEFAULT false,
    policy_kind                     text NOT NULL DEFAULT 'all_of',
    group_state                     text NOT NULL DEFAULT 'pending',
    on_satisfied                    text,
    wakes                           uuid,
    cancel_siblings_reason          text,
    cancel_siblings_pending_members uuid[],
    PRIMARY KEY (partition_key, downstream_eid),
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
CREATE INDEX edge_group_flow ON ff.edge_group (partition_key, flow_id);
CREATE INDEX edge_group_wakes ON ff.edge_group (partition_key, wakes) WHERE wakes IS NOT NULL;

CREATE TABLE ff.pending_cancel_groups (
    partition_key  smallint NOT NULL,
    flow_id        uuid NOT NULL,
    downstream_eid uuid NOT NULL,
    enqueued_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id, downstream_eid)
);
CREATE INDEX pending_cancel_groups_age ON ff.pending_cancel_groups (enqueued_at_ms);

-- Members that a cancelled flow still owes an end; a row is there until it has ended.
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
CREATE TABLE ff.cancel_backlog_member (
    partition_key smallint NOT NULL,
    flow_id       uuid NOT NULL,
    execution_id  uuid NOT NULL,
    PRIMARY KEY (partition_key, flow_id, execution_id)
);
CREATE INDEX cancel_backlog_member_execution ON ff.cancel_backlog_member (partition_key, execution_id);

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

ALTER TABLE ff.exec_core
    ADD COLUMN not_before_ms bigint,
    ADD COLUMN flow_cancelled boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT exec_core_not_before_while_blocked CHECK (
        not_before_ms IS NULL OR eligibility_state IN ('blocked_by_dependencies', 'blocked_by_operator'));
ALTER TABLE ff.exec_body ADD COLUMN member_name text;

-- Members that a cancelled flow is about to end.
CREATE INDEX exec_core_parked ON ff.exec_core (partition_key, flow_id)
    WHERE blocking_reason = 'paused_by_flow_cancel';

-- What dispatch looks for: ends of members that no edge has heard of yet.
CREATE INDEX completion_event_undispatched ON ff.completion_event (event_id)
    WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL;

-- Is a group decided? Satisfied is asked before impossible; a group that expects more edges, or that
-- could still reach its quorum with edges to come, is pending.
CREATE FUNCTION ff.group_decision(
    policy_kind text, k integer, expected_n integer, succeeded integer, failed integer, skipped integer,
    running integer
) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE
               WHEN n < expected_n THEN 'pending'
               WHEN n > 0 AND succeeded >= required THEN 'satisfied'
               WHEN failed + skipped > n - required AND (n >= required OR running = 0) THEN 'impossible'
               ELSE 'pending'
           END
      FROM (SELECT succeeded + failed + skipped + running AS n) AS edges,
           LATERAL (SELECT CASE policy_kind WHEN 'all_of' THEN n WHEN 'any_of' THEN 1 ELSE k END AS required) AS r
    $$;

-- Where a flow stands, from its members. A failure that every group it feeds got over is absorbed; so is
-- that of a child whose parent succeeded nevertheless.
CREATE FUNCTION ff.flow_standing(of_partition smallint, of_flow uuid, cancelled boolean)
RETURNS TABLE (
    total integer, completed integer, failed integer, cancelled_members integer, expired integer,
    skipped integer, active integer, suspended integer, waiting integer, delayed integer,
    rate_limited integer, waiting_children integer, derived_state text)
    LANGUAGE sql STABLE ROWS 1
    AS $$
    WITH members AS (
        SELECT e.execution_id, e.public_state FROM ff.exec_core e
         WHERE e.partition_key = of_partition AND e.flow_id = of_flow
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
               WHEN total = 0 THEN CASE WHEN cancelled THEN 'cancelled' ELSE 'open' END
               WHEN completed + failed + cancelled_members + expired + skipped = total THEN
                   CASE
                       WHEN cancelled THEN 'cancelled'
                       WHEN failed + cancelled_members + expired = 0 THEN 'completed'
                       WHEN EXISTS (
                           SELECT FROM members m
                            WHERE m.public_state IN ('failed', 'cancelled', 'expired')
                              AND (NOT EXISTS (SELECT FROM ff.edge o
                                                WHERE (o.partition_key, o.upstream_eid) = (of_partition, m.execution_id)
                                                  AND o.edge_state = 'applied')
                                   OR EXISTS (SELECT FROM ff.edge o JOIN ff.edge_group g USING (partition_key, downstream_eid)
                                               WHERE (o.partition_key, o.upstream_eid) = (of_partition, m.execution_id)
                                                 AND o.edge_state = 'applied' AND g.group_state <> 'satisfied'
                                                 AND NOT EXISTS (SELECT FROM members p
                                                                  WHERE p.execution_id = g.wakes
                                                                    AND p.public_state = 'completed'))))
                       THEN 'failed'
                       ELSE 'completed'
                   END
               WHEN active > 0 THEN 'running'
               WHEN suspended + delayed + rate_limited + waiting_children > 0 THEN 'blocked'
               ELSE 'open'
           END
      FROM counted
    $$;

-- The flows that are not settled, for the projector.
CREATE INDEX flow_summary_unsettled ON ff.flow_summary (last_summary_update_at_ms)
    WHERE public_flow_state IN ('open', 'running', 'blocked');
