-- Returns the first p_limit claimable executions of the lanes in claim order, locked by the calling
-- statement. Executions of lanes that are paused or disabled, and executions past their deadline, are not
-- claimable.
--
-- With several routes, a query without locks counts how many of the first p_limit executions each route
-- has; then that many are locked in each route. Executions that another transaction has locked, or that a
-- grant reserves for another worker, are skipped and replaced from any route.
--
-- Planner settings and ROWS 1 are bound to the function. The plan then reads the claim index in its order
-- and looks rows up by key, however long the queue was when the plan was made. A sort or a bitmap of all
-- claimable rows would cost more with every queued row.
CREATE OR REPLACE FUNCTION ff.claimable(
    p_lanes text[], p_namespace text, p_kinds text[], p_capabilities text[], p_limit integer,
    p_worker_id text DEFAULT ''
) RETURNS TABLE (partition_key smallint, execution_id uuid)
    LANGUAGE plpgsql VOLATILE ROWS 1
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    AS $$
#variable_conflict use_column
DECLARE
    routes bigint[];
    share record;
    locked_ids uuid[] := '{}';
    missing bigint := 0;
    now_ms constant bigint := ff.now_ms();
    any_grant constant boolean := EXISTS (SELECT FROM ff.claim_grant WHERE expires_at_ms > ff.now_ms());
BEGIN
    SELECT array_agg(r.route_id) INTO routes
      FROM ff.route r
     WHERE r.lane_id = ANY (p_lanes) AND r.namespace = p_namespace
       AND r.lane_id <> ALL (ARRAY(SELECT l.lane_id FROM ff.lane_registry l
                                    WHERE l.lane_id = ANY (p_lanes) AND l.lane_state IN ('paused', 'disabled')))
       AND (p_kinds IS NULL OR r.execution_kind = ANY (p_kinds))
       AND r.required_capabilities <@ p_capabilities;

    IF cardinality(routes) = 1 THEN
        RETURN QUERY
        SELECT e.partition_key, e.execution_id FROM ff.exec_core e
         WHERE e.route_id = routes[1] AND e.eligibility_state = 'eligible_now'
           AND (e.deadline_at_ms IS NULL OR e.deadline_at_ms > now_ms)
           AND (NOT any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, e.lease_epoch, p_worker_id))
         ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
         LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED;
        RETURN;
    END IF;

    FOR share IN
        SELECT chosen.route_id, count(*) AS size
          FROM (SELECT route.route_id
                  FROM unnest(routes) AS route (route_id) CROSS JOIN LATERAL (
                       SELECT e.priority, e.created_at_ms, e.execution_id FROM ff.exec_core e
                        WHERE e.route_id = route.route_id AND e.eligibility_state = 'eligible_now'
                          AND (e.deadline_at_ms IS NULL OR e.deadline_at_ms > now_ms)
                          AND (NOT any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, e.lease_epoch, p_worker_id))
                        ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
                        LIMIT p_limit) AS best
                 ORDER BY best.priority DESC, best.created_at_ms, best.execution_id
                 LIMIT p_limit) AS chosen
         GROUP BY chosen.route_id
    LOOP
        FOR partition_key, execution_id IN
            SELECT e.partition_key, e.execution_id FROM ff.exec_core e
             WHERE e.route_id = share.route_id AND e.eligibility_state = 'eligible_now'
               AND (e.deadline_at_ms IS NULL OR e.deadline_at_ms > now_ms)
               AND (NOT any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, e.lease_epoch, p_worker_id))
             ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
             LIMIT share.size FOR NO KEY UPDATE SKIP LOCKED
        LOOP
            locked_ids := locked_ids || execution_id;
            share.size := share.size - 1;
            RETURN NEXT;
        END LOOP;
        missing := missing + share.size;
    END LOOP;

    IF missing > 0 THEN
        RETURN QUERY
        SELECT best.partition_key, best.execution_id
          FROM unnest(routes) AS route (route_id) CROSS JOIN LATERAL (
               SELECT e.partition_key, e.execution_id, e.priority, e.created_at_ms
                 FROM ff.exec_core e
                WHERE e.route_id = route.route_id AND e.eligibility_state = 'eligible_now'
                  AND (e.deadline_at_ms IS NULL OR e.deadline_at_ms > now_ms)
                  AND (NOT any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, e.lease_epoch, p_worker_id))
                  AND e.execution_id <> ALL (locked_ids)
                ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
                LIMIT missing FOR NO KEY UPDATE SKIP LOCKED) AS best
         ORDER BY best.priority DESC, best.created_at_ms, best.execution_id
         LIMIT missing;
    END IF;
END
$$;
