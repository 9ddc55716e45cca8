-- Begins a new period of budgets: usage is 0, the last breach is forgotten, and a periodic budget is reset
-- again after its interval, counted from now. Counts of breaches stay. With only_due, budgets that are not
-- due any more are left alone. Answers the budgets that were reset.
CREATE OR REPLACE FUNCTION ff.reset_budgets(
    given_budget_id uuid[], only_due boolean DEFAULT false, given_now_ms bigint DEFAULT NULL
) RETURNS TABLE (budget_id uuid, next_reset_at_ms bigint, period_no bigint)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
#variable_conflict use_column
DECLARE
    now_ms constant bigint := coalesce(given_now_ms, ff.now_ms());
    reset_ids uuid[];
BEGIN
    PERFORM ff.lock_budgets(given_budget_id);
    WITH reset AS (
        UPDATE ff.budget_policy p
           SET last_breach_at_ms = NULL, last_breach_dim = NULL, last_reset_at_ms = now_ms,
               next_reset_at_ms = now_ms + nullif((p.policy_json ->> 'reset_interval_ms')::bigint, 0),
               reset_count = p.reset_count + 1, period_no = p.period_no + 1, updated_at_ms = now_ms
          FROM (SELECT DISTINCT ff.budget_partition(id), id FROM unnest(given_budget_id) AS id)
               AS g (partition_key, budget_id)
         WHERE (p.partition_key, p.budget_id) = (g.partition_key, g.budget_id)
           AND (NOT only_due OR p.next_reset_at_ms <= now_ms)
     RETURNING p.budget_id
    )
    SELECT array_agg(reset.budget_id) INTO reset_ids FROM reset;
    PERFORM FROM (SELECT ff.budget_partition(id), id FROM unnest(reset_ids) AS id ORDER BY 1, 2)
                 AS g (partition_key, budget_id)
       JOIN ff.budget_usage u USING (partition_key, budget_id)
      ORDER BY u.partition_key, u.budget_id, u.dimensions_key
        FOR UPDATE OF u;
    UPDATE ff.budget_usage u
       SET current_value = 0, last_reset_at_ms = now_ms, updated_at_ms = ff.now_ms()
      FROM (SELECT ff.budget_partition(id), id FROM unnest(reset_ids) AS id) AS g (partition_key, budget_id)
     WHERE (u.partition_key, u.budget_id) = (g.partition_key, g.budget_id);
    RETURN QUERY
    SELECT p.budget_id, p.next_reset_at_ms, p.period_no
      FROM unnest(reset_ids) AS g (id)
      JOIN ff.budget_policy p ON (p.partition_key, p.budget_id) = (ff.budget_partition(g.id), g.id);
END
$$;
