-- The best claimable executions, locked for the calling statement.
--
-- A function, because its row estimate and its settings keep the claim to the index in claim order and to
-- look-ups by key, whatever the depth of the queue was when the plan was made. Among several routes it first looks, without locking, how many of each the best of all are,
-- then takes that many; what others hold is passed over and made up for from any route.
CREATE FUNCTION ff.claimable(
    of_lanes text[], of_namespace text, of_kinds text[], offered text[], wanted integer
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
BEGIN
    SELECT array_agg(r.route_id) INTO routes
      FROM ff.route r
     WHERE r.lane_id = ANY (of_lanes) AND r.namespace = of_namespace
       AND (of_kinds IS NULL OR r.execution_kind = ANY (of_kinds))
       AND r.required_capabilities <@ offered;

    IF cardinality(routes) = 1 THEN
        RETURN QUERY
        SELECT e.partition_key, e.execution_id FROM ff.exec_core e
         WHERE e.route_id = routes[1] AND e.eligibility_state = 'eligible_now'
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
                        ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
                        LIMIT wanted) AS best
                 ORDER BY best.priority DESC, best.created_at_ms, best.execution_id
                 LIMIT wanted) AS chosen
         GROUP BY chosen.route_id
    LOOP
        FOR partition_key, execution_id IN
            SELECT e.partition_key, e.execution_id FROM ff.exec_core e
             WHERE e.route_id = share.route_id AND e.eligibility_state = 'eligible_now'
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
                  AND e.execution_id <> ALL (taken)
                ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
                LIMIT missing FOR NO KEY UPDATE SKIP LOCKED) AS best
         ORDER BY best.priority DESC, best.created_at_ms, best.execution_id
         LIMIT missing;
    END IF;
END
$$;
