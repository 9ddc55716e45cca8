-- Holds back those of the queued executions, which the caller has locked, that are attached to a spent budget:
-- they leave the queue and are blocked by budget, in words that name the budget, the dimension, and what is used
-- of it. spent are the budgets, NULL if none is; held has a dimension for each execution that was held back.
--
-- Budgets are read without locks: a report that is about to use up a budget does not stop a claim, and no lock of
-- a budget is taken while executions are locked. An execution that somebody else has locked is left in the queue:
-- a caller that locks both begins with the execution.
CREATE OR REPLACE FUNCTION ff.hold_out_of_budget(p_places tid[], OUT spent uuid[], OUT held text[])
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    details text[];
    dimensions text[];
BEGIN
    SELECT array_agg(s.budget_id ORDER BY s.budget_id), array_agg(s.dimension ORDER BY s.budget_id),
           array_agg(format('budget %s: %s of %s %s used%s', coalesce(nullif(s.scope_id, ''), s.budget_id::text),
                            s.used, s.hard_limit, s.dimension, ', reset at ' || ff.iso_instant(s.next_reset_at_ms))
                     ORDER BY s.budget_id)
      INTO spent, dimensions, details
      FROM ff.spent_budgets(ARRAY(
               SELECT DISTINCT b.id FROM unnest(p_places) AS p (place)
                 JOIN ff.ready r ON r.ctid = p.place, unnest(r.budget_ids) AS b (id))) AS s;
    IF spent IS NULL THEN
        RETURN;
    END IF;
    WITH free AS MATERIALIZED (
        SELECT r.ctid AS place, e.partition_key, e.execution_id
          FROM unnest(p_places) AS p (place)
          JOIN ff.ready r ON r.ctid = p.place
         CROSS JOIN LATERAL (
               SELECT c.partition_key, c.execution_id FROM ff.exec_core c
                WHERE c.partition_key = r.partition_key AND c.execution_id = r.execution_id
                  FOR NO KEY UPDATE SKIP LOCKED) AS e
         WHERE r.budget_ids && spent
    ), leaving AS (
        DELETE FROM ff.ready r USING free WHERE r.ctid = free.place
     RETURNING r.partition_key, r.execution_id, r.budget_ids, r.quota_key_id
    ), told AS MATERIALIZED (
        SELECT leaving.*, why.detail, why.dimension
          FROM leaving CROSS JOIN LATERAL (
               SELECT s.detail, s.dimension
                 FROM unnest(spent, details, dimensions) AS s (budget_id, detail, dimension)
                WHERE s.budget_id = ANY (leaving.budget_ids) LIMIT 1) AS why
    ), blocked AS (
        UPDATE ff.exec_core e
           SET eligibility_state = 'blocked_by_budget', blocking_reason = 'waiting_for_budget',
               blocking_detail = told.detail, last_mutation_at_ms = ff.now_ms()
          FROM told
         WHERE e.partition_key = told.partition_key AND e.execution_id = told.execution_id
    ), place_freed AS (    -- the next one of a limit that held others back can be claimed
        INSERT INTO ff.quota_wakeup (partition_key, quota_key_id)
        SELECT partition_key, quota_key_id FROM leaving WHERE quota_key_id IS NOT NULL
    )
    SELECT array_agg(told.dimension) INTO held FROM told;
END
$$;
