-- Which of these budgets nobody has created, each once; NULL if all exist. Work that is attached to such a budget
-- is not limited by it.
CREATE OR REPLACE FUNCTION ff.unknown_budgets(given_budget_id uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql STABLE STRICT
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    AS $$
BEGIN
    RETURN (SELECT array_agg(given.id ORDER BY given.id)
              FROM (SELECT DISTINCT id FROM unnest(given_budget_id) AS id) AS given
             WHERE NOT EXISTS (SELECT FROM ff.budget_policy p
                                WHERE p.partition_key = ff.budget_partition(given.id)
                                  AND p.budget_id = given.id));
END
$$;
