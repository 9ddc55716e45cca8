-- How many lost leases an execution survives: max_reclaim_count of the policy, else 5. Few, because an
-- execution that kills its workers takes every other handler of theirs along each time.
CREATE OR REPLACE FUNCTION ff.reclaim_cap(policy jsonb) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce((policy ->> 'max_reclaim_count')::integer,
                    (policy #>> '{timeout_policy,max_reclaim_count}')::integer, 5);
