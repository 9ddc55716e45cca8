-- Says why a policy is invalid, or returns NULL. Checks the fields that SQL statements read: a value that
-- would make such a statement fail must not be stored.
CREATE OR REPLACE FUNCTION ff.policy_fault(policy jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    path text;
    found jsonb;
    largest numeric;
BEGIN
    IF policy IS NULL THEN
        RETURN NULL;
    ELSIF jsonb_typeof(policy) <> 'object' THEN
        RETURN 'not an object';
    END IF;
    FOREACH path IN ARRAY ARRAY['retry_policy', 'timeout_policy', 'routing_requirements', 'retry_policy.backoff'] LOOP
        found := policy #> string_to_array(path, '.');
        IF jsonb_typeof(found) NOT IN ('object', 'null') THEN
            RETURN path || ': not an object';
        END IF;
    END LOOP;
    FOREACH path IN ARRAY ARRAY[
        'delay_until', 'dedup_window_ms', 'max_reclaim_count', 'max_replay_count',
        'max_signals_per_execution', 'retry_policy.max_retries',
        'retry_policy.backoff.delay_ms', 'retry_policy.backoff.initial_delay_ms',
        'retry_policy.backoff.max_delay_ms', 'timeout_policy.attempt_timeout_ms',
        'timeout_policy.execution_deadline_ms', 'timeout_policy.max_reclaim_count'] LOOP
        found := policy #> string_to_array(path, '.');
        largest := CASE WHEN path = 'delay_until' THEN 253402300799999
                        WHEN path LIKE '%\_ms' THEN 3153600000000 ELSE 2147483647 END;
        IF jsonb_typeof(found) = 'null' THEN
            CONTINUE;
        ELSIF jsonb_typeof(found) <> 'number'
              OR (found #>> '{}')::numeric NOT BETWEEN 0 AND largest
              OR found #>> '{}' !~ '^[0-9]+$' THEN
            RETURN format('%s: %s is not a whole number up to %s', path, found, largest);
        END IF;
    END LOOP;
    found := policy #> '{retry_policy,backoff,multiplier}';
    IF jsonb_typeof(found) <> 'number' OR (found #>> '{}')::numeric NOT BETWEEN 1 AND 1000 THEN
        RETURN format('retry_policy.backoff.multiplier: %s is not a number from 1 to 1000', found);
    END IF;
    IF jsonb_typeof(policy #> '{retry_policy,backoff,jitter}') <> 'boolean' THEN
        RETURN 'retry_policy.backoff.jitter: not true or false';
    END IF;
    FOREACH path IN ARRAY ARRAY['retry_policy.retryable_categories', 'routing_requirements.required_capabilities', 'budget_ids'] LOOP
        found := policy #> string_to_array(path, '.');
        IF jsonb_typeof(found) <> 'array'
           OR EXISTS (SELECT FROM jsonb_path_query(found, '$[*]') e WHERE jsonb_typeof(e) <> 'string') THEN
            RETURN path || ': not a list of texts';
        END IF;
        IF path = 'budget_ids' AND (jsonb_array_length(found) > 32 OR EXISTS (
               SELECT FROM jsonb_array_elements_text(found) b WHERE octet_length(b) NOT BETWEEN 1 AND 256)) THEN
            RETURN 'budget_ids: more than 32, or one that has not 1 to 256 bytes';
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
