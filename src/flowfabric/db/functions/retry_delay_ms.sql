-- The delay before retry number `retry_count` (0-based). Jitter is uniform in [delay/2, delay] and is
-- computed from the execution id and the number of the retry, so that the function is immutable. A part of
-- the backoff that cannot be read counts as its default.
CREATE OR REPLACE FUNCTION ff.retry_delay_ms(policy jsonb, retry_count integer, execution_id uuid) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    backoff constant jsonb := policy #> '{retry_policy,backoff}';
    multiplier float8 := 2;
    ms float8 := 1000;
BEGIN
    IF backoff IS NULL THEN
        RETURN least(1000 * power(2.0::float8, least(retry_count, 64)), 60000);
    END IF;
    IF backoff ->> 'type' = 'fixed' THEN
        ms := coalesce(ff.policy_number(backoff -> 'delay_ms', 3153600000000), 1000);
    ELSIF backoff ->> 'type' = 'exponential' THEN
        IF jsonb_typeof(backoff -> 'multiplier') = 'number' THEN
            multiplier := greatest(1, least(1000, (backoff -> 'multiplier')::numeric));
        END IF;
        ms := least(coalesce(ff.policy_number(backoff -> 'initial_delay_ms', 3153600000000), 1000)
                        * power(multiplier, least(retry_count, 64)),
                    coalesce(ff.policy_number(backoff -> 'max_delay_ms', 3153600000000), 60000));
    END IF;
    IF backoff -> 'jitter' = 'true' THEN
        ms := ms / 2 + ms / 2 * (hashtextextended(execution_id::text, retry_count) & 65535) / 65535.0;
    END IF;
    RETURN trunc(ms);
END
$$;
