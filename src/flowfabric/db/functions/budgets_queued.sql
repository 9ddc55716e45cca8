-- Are executions queued that are attached to budgets? The planner settings are bound: the plan must look into
-- the index of those, which is empty where there are none, however long the queue was when the plan was made.
CREATE OR REPLACE FUNCTION ff.budgets_queued() RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    AS $$
BEGIN
    RETURN EXISTS (SELECT FROM ff.ready r WHERE r.budget_ids IS NOT NULL);
END
$$;
