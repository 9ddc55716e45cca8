-- As ff.claimable, where executions are queued that are attached to budgets: those whose budget is spent are
-- not returned, and leave the queue. They are blocked by budget, in words that name the budget, the dimension,
-- and what is used of it. What is behind them is looked at until there are enough, in rounds that grow, so
-- that a flood of work on a spent budget hides others only for a few claims.
--
-- Budgets are read without locks: a report that is about to use up a budget does not stop a claim, and no lock of
-- a budget is taken while executions are locked.
CREATE OR REPLACE FUNCTION ff.claimable_in_budget(
    p_lanes text[], p_namespace text, p_kinds text[], p_capabilities text[], p_limit integer, p_worker_id text
) RETURNS TABLE (place tid)
    LANGUAGE plpgsql VOLATILE ROWS 1
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    rounds constant integer := 5;
    looked_at integer := p_limit;
    places tid[];
    spent uuid[];
    details text[];
BEGIN
    FOR round IN 1 .. rounds LOOP
        places := ARRAY(SELECT c.place FROM ff.claimable(
            p_lanes, p_namespace, p_kinds, p_capabilities, looked_at, p_worker_id) AS c);
        SELECT array_agg(s.budget_id ORDER BY s.budget_id),
               array_agg(format('budget %s: %s of %s %s used%s', coalesce(nullif(s.scope_id, ''), s.budget_id::text),
                                s.used, s.hard_limit, s.dimension,
                                ', reset at ' || ff.iso_instant(s.next_reset_at_ms)) ORDER BY s.budget_id)
          INTO spent, details
          FROM ff.spent_budgets(ARRAY(
                   SELECT DISTINCT b.id FROM unnest(places) AS p (place)
                     JOIN ff.ready r ON r.ctid = p.place, unnest(r.budget_ids) AS b (id))) AS s;
        EXIT WHEN spent IS NULL;
        -- An execution that somebody has locked is left in the queue: who locks both begins with the execution.
        WITH held AS (
            SELECT r.ctid AS place, e.partition_key, e.execution_id
              FROM unnest(places) AS p (place)
              JOIN ff.ready r ON r.ctid = p.place
              JOIN ff.exec_core e ON (e.partition_key, e.execution_id) = (r.partition_key, r.execution_id)
             WHERE r.budget_ids && spent
               FOR NO KEY UPDATE OF e SKIP LOCKED
        ), leaving AS (
            DELETE FROM ff.ready r USING held WHERE r.ctid = held.place
         RETURNING r.partition_key, r.execution_id, r.budget_ids
        )
        UPDATE ff.exec_core e
           SET eligibility_state = 'blocked_by_budget', blocking_reason = 'waiting_for_budget',
               blocking_detail = (SELECT s.detail FROM unnest(spent, details) AS s (budget_id, detail)
                                   WHERE s.budget_id = ANY (leaving.budget_ids) LIMIT 1),
               last_mutation_at_ms = ff.now_ms()
          FROM leaving
         WHERE (e.partition_key, e.execution_id) = (leaving.partition_key, leaving.execution_id);
        EXIT WHEN round = rounds;
        looked_at := least(500, 4 * looked_at);
    END LOOP;
    RETURN QUERY
    SELECT r.ctid
      FROM unnest(places) WITH ORDINALITY AS p (place, position)
      JOIN ff.ready r ON r.ctid = p.place
     WHERE spent IS NULL OR r.budget_ids IS NULL OR NOT r.budget_ids && spent
     ORDER BY p.position LIMIT p_limit;
END
$$;
