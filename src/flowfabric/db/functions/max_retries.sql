-- How many retries the policy allows: none without a retry policy, 3 if max_retries cannot be read.
CREATE OR REPLACE FUNCTION ff.max_retries(policy jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN jsonb_typeof(policy -> 'retry_policy') = 'object'
                THEN coalesce(ff.policy_number(policy #> '{retry_policy,max_retries}', 2147483647), 3)
                ELSE 0 END;
