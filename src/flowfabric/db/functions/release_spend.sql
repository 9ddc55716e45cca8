-- Takes back what executions have recorded in the ledgers of budgets: each amount of the current period is
-- subtracted from the usage, which is never below 0, and the ledger rows are deleted. Amounts of earlier
-- periods were forgotten by the reset, so only their rows are deleted. Answers what was subtracted.
CREATE OR REPLACE FUNCTION ff.release_spend(
    given_budget_id uuid[], given_execution_partition smallint[], given_execution_id uuid[]
) RETURNS TABLE (budget_id uuid, dimension text, released bigint)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
#variable_conflict use_column
DECLARE
    now_ms constant bigint := ff.now_ms();
BEGIN
    PERFORM ff.lock_budgets(given_budget_id);
    -- The lock of the budget keeps its ledger as it is; a statement after it sees all of it.
    PERFORM FROM (SELECT DISTINCT s.partition_key, s.budget_id, s.dimensions_key
                    FROM unnest(given_budget_id, given_execution_partition, given_execution_id)
                         AS g (budget_id, execution_partition, execution_id)
                    JOIN ff.budget_usage_by_exec s
                      ON (s.partition_key, s.budget_id, s.execution_id, s.execution_partition)
                       = (ff.budget_partition(g.budget_id), g.budget_id, g.execution_id, g.execution_partition)
                   ORDER BY 1, 2, 3) AS s
       JOIN ff.budget_usage u USING (partition_key, budget_id, dimensions_key)
        FOR UPDATE OF u;
    RETURN QUERY
    WITH deleted AS (
        DELETE FROM ff.budget_usage_by_exec s
         USING unnest(given_budget_id, given_execution_partition, given_execution_id)
               AS g (budget_id, execution_partition, execution_id)
         WHERE (s.partition_key, s.budget_id, s.execution_id, s.execution_partition)
             = (ff.budget_partition(g.budget_id), g.budget_id, g.execution_id, g.execution_partition)
     RETURNING s.partition_key, s.budget_id, s.dimensions_key, s.delta_total, s.period_no
    ), summed AS (
        SELECT d.partition_key, d.budget_id, d.dimensions_key, sum(d.delta_total)::bigint AS amount
          FROM deleted d
          LEFT JOIN ff.budget_policy p USING (partition_key, budget_id)
         WHERE d.period_no = coalesce(p.period_no, 0)
         GROUP BY d.partition_key, d.budget_id, d.dimensions_key
    )
    UPDATE ff.budget_usage u
       SET current_value = greatest(0, u.current_value - summed.amount), updated_at_ms = now_ms
      FROM summed
     WHERE (u.partition_key, u.budget_id, u.dimensions_key)
         = (summed.partition_key, summed.budget_id, summed.dimensions_key)
    RETURNING u.budget_id, u.dimensions_key, summed.amount;
END
$$;
