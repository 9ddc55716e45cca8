-- True if the policy allows another retry after `retry_count` retries. Without a retry policy there is
-- none; a max_retries that cannot be read counts as 3.
CREATE OR REPLACE FUNCTION ff.retries_left(policy jsonb, retry_count integer) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN jsonb_typeof(policy -> 'retry_policy') = 'object'
                THEN retry_count
                     < coalesce(ff.policy_number(policy #> '{retry_policy,max_retries}', 2147483647), 3)
                ELSE false END;
