-- Returns where the best p_wanted executions of the routes are in ff.ready, and their ids, in claim order: a merge of
-- the routes, without locks. Executions past their deadline, those that a grant reserves for another worker, those of
-- the keys p_seen_keys and those of p_seen_ids are left out. Both arrays are NULL if there are none.
--
-- Planner settings are bound to the function, as to ff.claimable: the plan reads the claim index in its order.
CREATE OR REPLACE FUNCTION ff.best_queued(
    p_routes bigint[], p_wanted integer, p_now_ms bigint, p_worker_id text, p_any_grant boolean,
    p_seen_keys bigint[] DEFAULT NULL, p_seen_ids uuid[] DEFAULT NULL, OUT places tid[], OUT ids uuid[]
)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET plan_cache_mode = force_generic_plan
    AS $$
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
$$;
