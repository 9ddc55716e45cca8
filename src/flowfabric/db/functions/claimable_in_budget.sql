-- As ff.claimable, where executions are queued that are attached to budgets: those whose budget is spent are
-- not returned, and leave the queue. The queue is looked at in rounds that grow until nothing of what is found is
-- out of budget, so that a flood of work on a spent budget hides others only for a few claims; limits are
-- applied to what is left. What a limit has counted as started, and a budget holds back then, is not counted. A
-- row without a place says what was held back, and by which dimensions.
CREATE OR REPLACE FUNCTION ff.claimable_in_budget(
    p_lanes text[], p_namespace text, p_kinds text[], p_capabilities text[], p_limit integer, p_worker_id text,
    p_takes boolean, p_seen pg_snapshot DEFAULT NULL
) RETURNS TABLE (place tid, held_back integer[], out_of_budget text[])
    LANGUAGE plpgsql VOLATILE ROWS 1
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    rounds constant integer := 5;
    began_ms constant bigint := ff.now_ms();
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    looked_at integer := p_limit;
    places tid[];
    counted integer[];
    limited_places tid[]; limited_keys bigint[];    -- those of the places that have a limit and a budget
    look_again boolean := false;
    outcome record;
    dimensions text[] := '{}';
BEGIN
    FOR round IN 1 .. rounds LOOP
        places := ARRAY(SELECT c.place FROM ff.claimable(p_lanes, p_namespace, p_kinds, p_capabilities, looked_at,
                                                         p_worker_id, p_limits => false) AS c);
        outcome := ff.hold_out_of_budget(places);
        EXIT WHEN outcome.spent IS NULL;
        dimensions := dimensions || coalesce(outcome.held, '{}');
        look_again := round = rounds;
        looked_at := least(500, 4 * looked_at);
    END LOOP;

    IF EXISTS (SELECT FROM ff.ready e WHERE e.quota_key_id IS NOT NULL) THEN
        SELECT array_agg(c.place) FILTER (WHERE c.place IS NOT NULL), max(c.held_back) INTO places, counted
          FROM ff.claimable(p_lanes, p_namespace, p_kinds, p_capabilities, p_limit, p_worker_id,
                            p_takes => p_takes, p_seen => p_seen) AS c;
        -- What the limits passed over is replaced by others, at which no round has looked.
        SELECT array_agg(r.ctid), array_agg(r.quota_key_id) INTO limited_places, limited_keys
          FROM unnest(places) AS p (place) JOIN ff.ready r ON r.ctid = p.place
         WHERE r.quota_key_id IS NOT NULL AND r.budget_ids IS NOT NULL;
        outcome := ff.hold_out_of_budget(places);
        dimensions := dimensions || coalesce(outcome.held, '{}');
        look_again := look_again OR outcome.spent IS NOT NULL;
        IF p_takes AND outcome.spent IS NOT NULL THEN
            -- The keys are locked: the newest starts are those that were counted here.
            DELETE FROM ff.quota_window w
             USING (SELECT given.k, count(*) AS n
                      FROM unnest(limited_places, limited_keys) AS given (place, k)
                     WHERE NOT EXISTS (SELECT FROM ff.ready r
                                        WHERE r.ctid = given.place AND NOT r.budget_ids && outcome.spent)
                     GROUP BY given.k) AS key
             CROSS JOIN LATERAL (
                   SELECT s.admitted_at_ms, s.start_no FROM ff.quota_window s
                    WHERE s.partition_key = ff.quota_partition(key.k, partitions) AND s.quota_key_id = key.k
                      AND s.admitted_at_ms >= began_ms
                    ORDER BY s.start_no DESC LIMIT key.n) AS start
             WHERE w.partition_key = ff.quota_partition(key.k, partitions) AND w.quota_key_id = key.k
               AND (w.admitted_at_ms, w.start_no) = (start.admitted_at_ms, start.start_no);
        END IF;
    END IF;
    RETURN QUERY
    SELECT r.ctid, NULL::integer[], NULL::text[]
      FROM unnest(places) WITH ORDINALITY AS p (place, position)
      JOIN ff.ready r ON r.ctid = p.place
     WHERE r.budget_ids IS NULL OR NOT r.budget_ids && coalesce(outcome.spent, '{}')
     ORDER BY p.position LIMIT p_limit;
    IF counted IS NOT NULL OR dimensions <> '{}' OR look_again THEN
        RETURN QUERY SELECT NULL::tid,
            ARRAY[coalesce(counted[1], 0), coalesce(counted[2], 0), greatest(counted[3], look_again::integer)],
            dimensions;
    END IF;
END
$$;
