-- Deletes executions with every row that has their id, and flows that have no member left; answers how
-- many. A new table that has execution ids must be added here; a test checks it. The caller has locked
-- the executions. One whose flow or join another transaction has locked is passed over: waiting for it
-- would stall the batch, and would lock in another order than everybody else.
--
-- The planner settings are bound, because batches are small and tables are large: every delete must
-- look rows up by key, whatever the sizes of the tables were when the cached plans were made.
CREATE OR REPLACE FUNCTION ff.delete_executions(old_partitions smallint[], old_ids uuid[]) RETURNS integer
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
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
$$;
