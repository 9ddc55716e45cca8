-- Locks the budgets until the transaction ends, in one order. A caller that changes the usage, the ledger or the
-- period of a budget has called this before. The lock is that of the policy row; a budget that nobody has
-- created has none, and an advisory lock stands in for it.
CREATE OR REPLACE FUNCTION ff.lock_budgets(given_budget_id uuid[]) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    AS $$
DECLARE
    budget record;
BEGIN
    FOR budget IN
        SELECT DISTINCT ff.budget_partition(id) AS partition_key, id FROM unnest(given_budget_id) AS id ORDER BY 1, 2
    LOOP
        PERFORM FROM ff.budget_policy p
          WHERE (p.partition_key, p.budget_id) = (budget.partition_key, budget.id) FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            PERFORM pg_advisory_xact_lock(hashtextextended('flowfabric.budget ' || budget.id, 0));
        END IF;
    END LOOP;
END
$$;
