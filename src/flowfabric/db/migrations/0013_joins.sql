DROP TABLE ff.edge, ff.edge_group, ff.pending_cancel_groups;

-- A dependency: the join `group_id` waits for the execution `upstream_eid`.
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

-- A join: what the execution `waiter_eid` waits for, as a member for its upstreams or for children of its own.
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
CREATE INDEX edge_group_flow ON ff.edge_group (partition_key, flow_id);
CREATE INDEX edge_group_waiter ON ff.edge_group (partition_key, waiter_eid);

CREATE TABLE ff.pending_cancel_groups (
    partition_key  smallint NOT NULL,
    flow_id        uuid NOT NULL,
    group_id       uuid NOT NULL,
    enqueued_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, flow_id, group_id)
);
CREATE INDEX pending_cancel_groups_age ON ff.pending_cancel_groups (enqueued_at_ms);

CREATE OR REPLACE FUNCTION ff.flow_standing(of_partition smallint, of_flow uuid, cancelled boolean)
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
                                   OR EXISTS (SELECT FROM ff.edge o JOIN ff.edge_group g USING (partition_key, group_id)
                                               WHERE (o.partition_key, o.upstream_eid) = (of_partition, m.execution_id)
                                                 AND o.edge_state = 'applied' AND g.group_state <> 'satisfied'
                                                 AND NOT EXISTS (SELECT FROM members p
                                                                  WHERE p.execution_id = g.waiter_eid AND g.waits_as = 'children'
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


CREATE OR REPLACE FUNCTION ff.forget_executions(old_partitions smallint[], old_ids uuid[]) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
DECLARE
    homes smallint[];
    touched uuid[];
BEGIN
    SELECT array_agg(f.partition_key), array_agg(f.flow_id) INTO homes, touched
      FROM (SELECT DISTINCT e.partition_key, e.flow_id
              FROM unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
              JOIN ff.exec_core e USING (partition_key, execution_id)
             WHERE e.flow_id IS NOT NULL) AS f;

    DELETE FROM ff.completion_event t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE t.execution_id = old.execution_id AND t.partition_key = old.partition_key;
    DELETE FROM ff.lease_event t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE t.execution_id = old.execution_id AND t.partition_key = old.partition_key;
    DELETE FROM ff.operator_event t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE t.execution_id = old.execution_id AND t.partition_key = old.partition_key;
    DELETE FROM ff.claim_grant t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
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
    -- A key that stands for a later execution by now stays.
    DELETE FROM ff.exec_idempotency t
     USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
      JOIN ff.exec_body b USING (partition_key, execution_id)
      JOIN ff.exec_core e USING (partition_key, execution_id)
      JOIN ff.route r USING (route_id)
     WHERE (t.partition_key, t.namespace, t.idempotency_key) = (old.partition_key, r.namespace, b.idempotency_key)
       AND t.execution_id = old.execution_id;
    DELETE FROM ff.exec_body t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);
    DELETE FROM ff.exec_core t USING unnest(old_partitions, old_ids) AS old (partition_key, execution_id)
     WHERE (t.partition_key, t.execution_id) = (old.partition_key, old.execution_id);

    -- A flow goes with its last member.
    IF touched IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(f.partition_key), array_agg(f.flow_id) INTO homes, touched
      FROM unnest(homes, touched) AS f (partition_key, flow_id)
     WHERE NOT EXISTS (SELECT FROM ff.exec_core e
                        WHERE (e.partition_key, e.flow_id) = (f.partition_key, f.flow_id));
    DELETE FROM ff.edge_group t USING unnest(homes, touched) AS f (partition_key, flow_id)
     WHERE (t.partition_key, t.flow_id) = (f.partition_key, f.flow_id);
    DELETE FROM ff.pending_cancel_groups t USING unnest(homes, touched) AS f (partition_key, flow_id)
     WHERE (t.partition_key, t.flow_id) = (f.partition_key, f.flow_id);
    DELETE FROM ff.cancel_backlog t USING unnest(homes, touched) AS f (partition_key, flow_id)
     WHERE (t.partition_key, t.flow_id) = (f.partition_key, f.flow_id);
    DELETE FROM ff.flow_summary t USING unnest(homes, touched) AS f (partition_key, flow_id)
     WHERE (t.partition_key, t.flow_id) = (f.partition_key, f.flow_id);
    DELETE FROM ff.flow_core t USING unnest(homes, touched) AS f (partition_key, flow_id)
     WHERE (t.partition_key, t.flow_id) = (f.partition_key, f.flow_id);
END
$$;
