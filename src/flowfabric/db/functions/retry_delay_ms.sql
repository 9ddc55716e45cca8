-- The delay before retry number `retry_count` (0-based). Jitter is uniform in [delay/2, delay] and is
-- computed from the execution id and the number of the retry, so that the function is immutable.
CREATE OR REPLACE FUNCTION ff.retry_delay_ms(policy jsonb, retry_count integer, execution_id uuid) RETURNS bigint
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
