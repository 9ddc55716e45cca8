-- True if the policy allows another retry after `retry_count` retries.
CREATE OR REPLACE FUNCTION ff.retries_left(policy jsonb, retry_count integer) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN retry_count < ff.max_retries(policy);
