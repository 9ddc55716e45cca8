-- True if a failure of this class and category is retried. Categories that are not a list, or an empty
-- list, allow every category.
CREATE OR REPLACE FUNCTION ff.retry_allowed(policy jsonb, retry_count integer, failure_class text, failure_category text)
RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN failure_class IN ('transient', 'infra_crash')
       AND ff.retries_left(policy, retry_count)
       AND (jsonb_typeof(policy #> '{retry_policy,retryable_categories}') IS DISTINCT FROM 'array'
            OR policy #> '{retry_policy,retryable_categories}' = '[]'
            OR (policy #> '{retry_policy,retryable_categories}') ? failure_category);
