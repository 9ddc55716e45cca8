-- Submits one execution from SQL, a trigger or any driver, in the caller's transaction. Returns the id of
-- the new execution, or of the earlier one that has the same idempotency key. If the earlier one has
-- another kind or payload, the call is refused with SQLSTATE FF002, unless on_conflict is 'return'.
CREATE OR REPLACE FUNCTION ff.submit(
    kind text,
    payload jsonb DEFAULT '{}',
    lane text DEFAULT 'default',
    namespace text DEFAULT 'default',
    priority integer DEFAULT 0,
    delay interval DEFAULT NULL,
    deadline interval DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    tags jsonb DEFAULT NULL,
    requires text[] DEFAULT '{}',
    policy jsonb DEFAULT NULL,
    on_conflict text DEFAULT 'error',
    idempotency_window interval DEFAULT NULL,
    limit_name text DEFAULT NULL,
    limit_key text DEFAULT NULL
) RETURNS text
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    AS $$
DECLARE
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    new_id constant uuid := gen_random_uuid();
    limit_id constant uuid := (SELECT p.quota_policy_id FROM ff.quota_policy p
                                WHERE p.namespace = submit.namespace AND p.name = limit_name);
    new_partition constant smallint := CASE WHEN idempotency_key IS NOT NULL
        THEN ff.key_partition(namespace, idempotency_key, partitions)
        WHEN limit_id IS NOT NULL
        THEN ff.quota_partition(ff.quota_key_id(limit_id, coalesce(limit_key, '')), partitions)
        ELSE (get_byte(uuid_send(new_id), 15) % partitions)::smallint END;
    capabilities text[];
    fault text := ff.policy_fault(policy);
    -- Control characters, invisible ones, and those that change the direction of what follows.
    names_never_have constant text := '[\u0001-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]';
    answer record;
    found_id text;
BEGIN
    IF kind IS NULL OR kind = '' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: kind must not be empty';
    END IF;
    IF octet_length(kind) > 256 OR kind ~ names_never_have THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: kind %s must be at most 256 printable bytes', to_json(left(kind, 64)));
    END IF;
    IF octet_length(namespace) NOT BETWEEN 1 AND 256 OR namespace ~ names_never_have THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: namespace %s must be 1 to 256 printable bytes', to_json(left(namespace, 64)));
    END IF;
    IF octet_length(idempotency_key) NOT BETWEEN 1 AND 1024 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: idempotency_key must have 1 to 1024 bytes';
    END IF;
    IF limit_name IS NOT NULL AND limit_id IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: limit_name %s does not exist', to_json(left(limit_name, 64)));
    END IF;
    IF limit_key IS NOT NULL AND limit_name IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: limit_key needs a limit_name';
    END IF;
    IF octet_length(limit_key) NOT BETWEEN 1 AND 1024 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: limit_key must have 1 to 1024 bytes';
    END IF;
    IF on_conflict IS NULL OR on_conflict NOT IN ('error', 'return') THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: on_conflict %L must be error or return', on_conflict);
    END IF;
    IF idempotency_window IS NOT NULL AND idempotency_key IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: idempotency_window needs an idempotency_key';
    END IF;
    IF extract(epoch FROM idempotency_window) NOT BETWEEN 0.001 AND 3153600000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: idempotency_window %s must be positive and within a century', idempotency_window);
    END IF;
    IF octet_length(lane) NOT BETWEEN 1 AND 64 OR lane !~ '^[ -~]+$' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: lane %L must be 1 to 64 printable ASCII bytes', lane);
    END IF;
    IF (extract(epoch FROM deadline) * 1000)::bigint < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: deadline %L must be positive', deadline);
    END IF;
    IF fault IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_policy_json: %s', fault);
    END IF;
    IF abs(extract(epoch FROM delay)) > 3153600000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: delay %s must be within a century', delay);
    END IF;
    IF abs(extract(epoch FROM deadline)) > 3153600000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: deadline %s must be within a century', deadline);
    END IF;
    IF jsonb_typeof(tags) <> 'object'
       OR EXISTS (SELECT FROM jsonb_each(tags) t WHERE jsonb_typeof(t.value) <> 'string') THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: tags must map keys to text';
    END IF;
    fault := ff.tags_fault(tags);
    IF fault IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: %s', fault);
    END IF;
    IF EXISTS (SELECT FROM jsonb_each_text(tags) t WHERE octet_length(t.value) > 1024) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: the value of a tag must be at most 1024 bytes';
    END IF;
    capabilities := ARRAY(
        SELECT DISTINCT c COLLATE "C" FROM unnest(requires || ARRAY(SELECT jsonb_array_elements_text(
            policy #> '{routing_requirements,required_capabilities}'))) c ORDER BY 1);
    IF cardinality(capabilities) > 256 OR octet_length(array_to_string(capabilities, ',')) > 4096
       OR EXISTS (SELECT FROM unnest(capabilities) c WHERE c IS NULL OR c = '' OR c ~ '[\x01-\x20\x7f,]') THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_capabilities: required: %s', left(requires::text, 200));
    END IF;
    -- session_user has collation "C". An argument with that collation would make the called function
    -- compare every text in "C", and none of our indexes has that collation.
    SELECT * INTO answer FROM ff.create_execution(
        ARRAY[namespace], ARRAY[lane], ARRAY[kind], ARRAY[array_to_string(capabilities, ',')],
        ARRAY['json'], ARRAY['sql:' || session_user COLLATE "default"], ARRAY[policy],
        ARRAY[new_partition],
        ARRAY[new_id], NULL, ARRAY[convert_to(payload::text, 'UTF8')], ARRAY[priority],
        CASE WHEN delay IS NOT NULL THEN ARRAY[(extract(epoch FROM delay) * 1000)::bigint] END,
        CASE WHEN delay IS NULL AND policy ->> 'delay_until' IS NOT NULL
             THEN ARRAY[(policy ->> 'delay_until')::bigint] END,
        CASE WHEN deadline IS NOT NULL THEN ARRAY[(extract(epoch FROM deadline) * 1000)::bigint] END, NULL,
        CASE WHEN idempotency_key IS NOT NULL THEN ARRAY[idempotency_key] END,
        ARRAY[coalesce((extract(epoch FROM idempotency_window) * 1000)::bigint,
                       (policy ->> 'dedup_window_ms')::bigint, 86400000)],
        CASE WHEN tags IS NOT NULL THEN ARRAY[tags] END, given_fresh => true,
        given_quota_policy_id => CASE WHEN limit_id IS NOT NULL THEN ARRAY[limit_id] END,
        given_quota_dimension => CASE WHEN limit_key IS NOT NULL THEN ARRAY[limit_key] END);
    found_id := format('{fp:%s}:%s', new_partition, coalesce(answer.execution_id, new_id));
    IF cardinality(answer.differs) > 0 AND on_conflict = 'error' THEN
        RAISE EXCEPTION USING ERRCODE = 'FF002',
            MESSAGE = format('idempotency_key %L belongs to execution %s, which was submitted with another %s',
                             idempotency_key, found_id, array_to_string(answer.differs, ' and another ')),
            HINT = 'Use another key, or on_conflict => ''return'' to get that execution.';
    END IF;
    RETURN found_id;
END
$$;
