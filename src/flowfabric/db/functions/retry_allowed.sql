-- True if a failure of this class and category is retried.
CREATE OR REPLACE FUNCTION ff.retry_allowed(policy jsonb, retry_count integer, failure_class text, failure_category text)
RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN failure_class IN ('transient', 'infra_crash')
       AND ff.retries_left(policy, retry_count)
       AND (coalesce(jsonb_array_length(policy #> '{retry_policy,retryable_categories}'), 0) = 0
            OR (policy #> '{retry_policy,retryable_categories}') ? failure_category);
