-- What a stored policy says about trying again; read by fail, by attempt timeouts and by lease expiry.

-- Wait before retry number `retry_count` (0-based). Jitter is drawn from the execution and the
-- retry, uniform in [delay/2, delay], so that the function stays immutable.
CREATE FUNCTION ff.retry_delay_ms(policy jsonb, retry_count integer, execution_id uuid) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    WITH backoff AS (
        SELECT policy #> '{retry_policy,backoff}' AS given
    ), delay AS (
        SELECT CASE
                   WHEN given IS NULL THEN least(1000 * power(2.0::float8, least(retry_count, 64)), 60000)
                   WHEN given ->> 'type' = 'fixed' THEN coalesce((given ->> 'delay_ms')::float8, 1000)
                   WHEN given ->> 'type' = 'exponential' THEN least(
                       coalesce((given ->> 'initial_delay_ms')::float8, 1000)
                           * power(coalesce((given ->> 'multiplier')::float8, 2.0), least(retry_count, 64)),
                       coalesce((given ->> 'max_delay_ms')::float8, 60000))
                   ELSE 1000
               END AS ms,
               coalesce((given ->> 'jitter')::boolean, false) AS jitter
          FROM backoff
    )
    SELECT trunc(CASE WHEN jitter
                      THEN ms / 2 + ms / 2 * (hashtextextended(execution_id::text, retry_count) & 65535) / 65535.0
                      ELSE ms END)::bigint
      FROM delay
    $$;

CREATE FUNCTION ff.retries_left(policy jsonb, retry_count integer) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN jsonb_typeof(policy -> 'retry_policy') = 'object'
                THEN retry_count < coalesce((policy #>> '{retry_policy,max_retries}')::integer, 3)
                ELSE false END;

-- May a failure of this class and category be tried again?
CREATE FUNCTION ff.retry_allowed(policy jsonb, retry_count integer, failure_class text, failure_category text)
RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN failure_class IN ('transient', 'infra_crash')
       AND ff.retries_left(policy, retry_count)
       AND (coalesce(jsonb_array_length(policy #> '{retry_policy,retryable_categories}'), 0) = 0
            OR (policy #> '{retry_policy,retryable_categories}') ? failure_category);

-- How often a lost lease is recovered from: the policy's cap, 100 within a policy that names none,
-- 1000 without a policy.
CREATE FUNCTION ff.reclaim_cap(policy jsonb) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN policy IS NULL THEN 1000
                ELSE coalesce((policy ->> 'max_reclaim_count')::integer,
                              (policy #>> '{timeout_policy,max_reclaim_count}')::integer, 100) END;
