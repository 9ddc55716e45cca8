-- Locks the budgets as ff.lock_budgets does, and returns those that it has locked. For one that another
-- transaction has locked it waits a tenth of a second: reports are short, and a budget that is reported to all
-- the time is free between two of them only. After a wait that was in vain it waits for no other.
CREATE OR REPLACE FUNCTION ff.try_lock_budgets(given_budget_id uuid[]) RETURNS TABLE (budget_id uuid)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET lock_timeout = '100ms'
    AS $$
#variable_conflict use_column
DECLARE
    budget record;
    waits boolean := true;
BEGIN
    FOR budget IN
        SELECT DISTINCT ff.budget_partition(id) AS partition_key, id FROM unnest(given_budget_id) AS id ORDER BY 1, 2
    LOOP
        budget_id := budget.id;
        PERFORM FROM ff.budget_policy p
          WHERE (p.partition_key, p.budget_id) = (budget.partition_key, budget.id) FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN NEXT;
        ELSIF waits THEN
            BEGIN
                PERFORM ff.lock_budgets(ARRAY[budget.id]);
                RETURN NEXT;
            EXCEPTION WHEN lock_not_available THEN
                waits := false;
            END;
        END IF;
    END LOOP;
END
$$;
