-- Which of the budgets are spent: a dimension with a hard limit has no room left, in a budget that is strict.
-- For each the first such dimension, what was used of it, its limit, and when the budget is reset. Reads
-- without locks: work that is attached to a spent budget is held back, and comes back soon after there is room.
CREATE OR REPLACE FUNCTION ff.spent_budgets(given_budget_id uuid[])
    RETURNS TABLE (budget_id uuid, scope_id text, dimension text, used bigint, hard_limit bigint,
                   next_reset_at_ms bigint)
    LANGUAGE plpgsql STABLE ROWS 1
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT DISTINCT ON (p.budget_id) p.budget_id, p.scope_id, u.dimensions_key, u.current_value, l.hard,
           p.next_reset_at_ms
      FROM (SELECT DISTINCT id FROM unnest(given_budget_id) AS id) AS g
      JOIN ff.budget_policy p ON (p.partition_key, p.budget_id) = (ff.budget_partition(g.id), g.id)
     CROSS JOIN LATERAL jsonb_each_text(p.policy_json -> 'hard_limits') AS h (name, value)
     CROSS JOIN LATERAL (SELECT h.value::bigint) AS l (hard)
      JOIN ff.budget_usage u
        ON (u.partition_key, u.budget_id, u.dimensions_key) = (p.partition_key, p.budget_id, h.name)
     WHERE p.enforcement_mode = 'strict' AND l.hard > 0 AND u.current_value >= l.hard
     ORDER BY p.budget_id, u.dimensions_key COLLATE "C";
END
$$;
