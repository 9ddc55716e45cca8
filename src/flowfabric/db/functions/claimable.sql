-- Returns where the first p_limit claimable executions of the lanes are in ff.ready, in claim order, locked
-- by the calling statement. Executions of lanes that are paused or disabled, and executions past their deadline, are not
-- claimable.
--
-- With several routes, the best executions are found by a merge of the routes, without locks, and then
-- locked. Executions that another transaction has locked, or that a grant reserves for another worker, are
-- skipped; the merge is then repeated for more executions, until enough are locked or no more are left.
--
-- Where executions that have a limit are queued, ff.claimable_limited answers; only then is there a row
-- without a place. An execution that is queued after the look for such executions, by another transaction, is not
-- seen by the statement that calls this function, and is left for the next claim. p_seen is what that statement sees.
--
-- With p_limits false, limits are not looked at: ff.claimable_in_budget does so first, where executions that are
-- attached to budgets are queued.
--
-- Planner settings and ROWS 1 are bound to the function. The plan then reads the claim index in its order
-- and looks rows up by key, however long the queue was when the plan was made. A sort or a bitmap of all
-- claimable rows would cost more with every queued row. The plan is kept, also on connections of a pooler.
CREATE OR REPLACE FUNCTION ff.claimable(
    p_lanes text[], p_namespace text, p_kinds text[], p_capabilities text[], p_limit integer,
    p_worker_id text DEFAULT '', p_takes boolean DEFAULT true, p_limits boolean DEFAULT true,
    p_seen pg_snapshot DEFAULT NULL
) RETURNS TABLE (place tid, held_back integer[])
    LANGUAGE plpgsql VOLATILE ROWS 1
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    routes bigint[];
    wanted integer := p_limit;  -- how many the merge finds
    missing integer := p_limit;
    locked integer;
    places tid[];
    ids uuid[];
    tried uuid[] := '{}';
    now_ms constant bigint := ff.now_ms();
    any_grant constant boolean := EXISTS (SELECT FROM ff.claim_grant WHERE expires_at_ms > ff.now_ms());
BEGIN
    SELECT array_agg(r.route_id) INTO routes
      FROM ff.route r
     WHERE r.lane_id = ANY (p_lanes) AND r.namespace = p_namespace
       AND r.lane_id <> ALL (ARRAY(SELECT l.lane_id FROM ff.lane_registry l
                                    WHERE l.lane_id = ANY (p_lanes) AND l.lane_state IN ('paused', 'disabled')))
       AND (p_kinds IS NULL OR r.execution_kind IN (SELECT unnest(p_kinds)))
       AND r.required_capabilities <@ p_capabilities;

    IF p_limits AND routes IS NOT NULL AND EXISTS (SELECT FROM ff.ready e WHERE e.quota_key_id IS NOT NULL) THEN
        RETURN QUERY SELECT * FROM ff.claimable_limited(routes, p_limit, p_worker_id, any_grant, p_takes, p_seen);
        RETURN;
    END IF;

    IF cardinality(routes) = 1 THEN
        RETURN QUERY
        SELECT e.ctid, NULL::integer[] FROM ff.ready e
         WHERE e.route_id = routes[1]
           AND (e.deadline_at_ms IS NULL OR e.deadline_at_ms > now_ms)
           AND (NOT any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, p_worker_id))
         ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
         LIMIT p_limit FOR UPDATE SKIP LOCKED;
        RETURN;
    END IF;

    WHILE missing > 0 AND routes IS NOT NULL LOOP
        SELECT best.places, best.ids INTO places, ids
          FROM ff.best_queued(routes, wanted, now_ms, p_worker_id, any_grant) AS best;
        RETURN QUERY
        SELECT e.ctid, NULL::integer[]
          FROM unnest(places, ids) AS best (place, execution_id)
          JOIN ff.ready e ON e.ctid = best.place AND e.execution_id = best.execution_id
         WHERE best.execution_id NOT IN (SELECT unnest(tried))
           AND (NOT any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, p_worker_id))
         LIMIT missing FOR UPDATE OF e SKIP LOCKED;
        GET DIAGNOSTICS locked = ROW_COUNT;
        missing := missing - locked;
        EXIT WHEN coalesce(cardinality(places), 0) < wanted;
        tried := tried || ids;
        wanted := 4 * wanted;
    END LOOP;
END
$$;
