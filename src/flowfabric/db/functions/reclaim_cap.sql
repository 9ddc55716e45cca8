-- How many lost leases an execution survives: max_reclaim_count of the policy; 100 if the policy has
-- none; 1000 without a policy.
CREATE OR REPLACE FUNCTION ff.reclaim_cap(policy jsonb) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN policy IS NULL THEN 1000
                ELSE coalesce((policy ->> 'max_reclaim_count')::integer,
                              (policy #>> '{timeout_policy,max_reclaim_count}')::integer, 100) END;
