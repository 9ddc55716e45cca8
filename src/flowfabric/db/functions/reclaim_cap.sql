-- How many lost leases an execution survives: max_reclaim_count of the policy; 100 if the policy has
-- none that can be read; 1000 without a policy.
CREATE OR REPLACE FUNCTION ff.reclaim_cap(policy jsonb) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN policy IS NULL THEN 1000
                ELSE coalesce(ff.policy_number(policy -> 'max_reclaim_count', 2147483647),
                              ff.policy_number(policy #> '{timeout_policy,max_reclaim_count}', 2147483647),
                              100)::integer END;
