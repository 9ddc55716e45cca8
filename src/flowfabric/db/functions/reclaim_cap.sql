-- How many lost leases an execution survives: max_reclaim_count of the policy; 5 without a policy, or if the
-- policy has none that can be read. Few, because an execution that kills its workers takes every other
-- handler of theirs along each time.
CREATE OR REPLACE FUNCTION ff.reclaim_cap(policy jsonb) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(ff.policy_number(policy -> 'max_reclaim_count', 2147483647),
                    ff.policy_number(policy #> '{timeout_policy,max_reclaim_count}', 2147483647),
                    5)::integer;
