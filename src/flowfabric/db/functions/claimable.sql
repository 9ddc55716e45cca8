-- Finds the best claimable executions of the lanes and locks them for the calling statement.
--
-- With several routes, a first look without locks counts how many of the best executions each route has;
-- then that many are locked in each route. Executions that are locked by others, or reserved by a grant
-- for another worker, are passed over and replaced from any route.
--
-- A function with bound planner settings and ROWS 1, because only so the claim reads its index in claim
-- order and looks rows up by key, whatever the depth of the queue was when the plan was made. A sort or
-- a bitmap of all claimable rows would cost more with every row that is queued.
CREATE OR REPLACE FUNCTION ff.claimable(
    of_lanes text[], of_namespace text, of_kinds text[], offered text[], wanted integer,
    for_worker text DEFAULT ''
) RETURNS TABLE (partition_key smallint, execution_id uuid)
    LANGUAGE plpgsql VOLATILE ROWS 1
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    AS $$
#variable_conflict use_column
DECLARE
    routes bigint[];
    share record;
    taken uuid[] := '{}';
    missing bigint := 0;
    grants constant boolean := EXISTS (SELECT FROM ff.claim_grant WHERE expires_at_ms > ff.now_ms());
BEGIN
    SELECT array_agg(r.route_id) INTO routes
      FROM ff.route r
     WHERE r.lane_id = ANY (of_lanes) AND r.namespace = of_namespace
       AND r.lane_id <> ALL (ARRAY(SELECT l.lane_id FROM ff.lane_registry l
                                    WHERE l.lane_id = ANY (of_lanes) AND l.lane_state <> 'active'))
       AND (of_kinds IS NULL OR r.execution_kind = ANY (of_kinds))
       AND r.required_capabilities <@ offered;

    IF cardinality(routes) = 1 THEN
        RETURN QUERY
        SELECT e.partition_key, e.execution_id FROM ff.exec_core e
         WHERE e.route_id = routes[1] AND e.eligibility_state = 'eligible_now'
           AND (NOT grants OR NOT ff.reserved(e.partition_key, e.execution_id, for_worker))
         ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
         LIMIT wanted FOR NO KEY UPDATE SKIP LOCKED;
        RETURN;
    END IF;

    FOR share IN
        SELECT chosen.route_id, count(*) AS size
          FROM (SELECT route.route_id
                  FROM unnest(routes) AS route (route_id) CROSS JOIN LATERAL (
                       SELECT e.priority, e.created_at_ms, e.execution_id FROM ff.exec_core e
                        WHERE e.route_id = route.route_id AND e.eligibility_state = 'eligible_now'
                          AND (NOT grants OR NOT ff.reserved(e.partition_key, e.execution_id, for_worker))
                        ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
                        LIMIT wanted) AS best
                 ORDER BY best.priority DESC, best.created_at_ms, best.execution_id
                 LIMIT wanted) AS chosen
         GROUP BY chosen.route_id
    LOOP
        FOR partition_key, execution_id IN
            SELECT e.partition_key, e.execution_id FROM ff.exec_core e
             WHERE e.route_id = share.route_id AND e.eligibility_state = 'eligible_now'
               AND (NOT grants OR NOT ff.reserved(e.partition_key, e.execution_id, for_worker))
             ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
             LIMIT share.size FOR NO KEY UPDATE SKIP LOCKED
        LOOP
            taken := taken || execution_id;
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
                  AND (NOT grants OR NOT ff.reserved(e.partition_key, e.execution_id, for_worker))
                  AND e.execution_id <> ALL (taken)
                ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
                LIMIT missing FOR NO KEY UPDATE SKIP LOCKED) AS best
         ORDER BY best.priority DESC, best.created_at_ms, best.execution_id
         LIMIT missing;
    END IF;
END
$$;
