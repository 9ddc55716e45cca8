-- One way to create: the engine's statement, transactional enqueue and plain SQL all end here.

CREATE FUNCTION ff.route_id(
    namespace text, lane_id text, execution_kind text, required_capabilities text[]
) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('x' || encode(substr(sha256(convert_to(
        concat_ws(E'\x1f', octet_length(namespace), namespace, lane_id, octet_length(execution_kind),
                  execution_kind, array_to_string(required_capabilities, ',')),
        'UTF8')), 1, 8), 'hex'))::bit(64)::bigint;

-- The partition that an idempotency record and its execution share.
CREATE FUNCTION ff.key_partition(namespace text, idempotency_key text, num_flow_partitions integer)
RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (('x' || encode(substr(sha256(convert_to(
        concat_ws(E'\x1f', namespace, idempotency_key), 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint
        % num_flow_partitions)::smallint;

-- Creates what is new among the given executions, in sets. Executions share shapes: what a batch
-- repeats (route, encoding, creator, policy) is given once and pointed at by `shape` (1-based).
-- An array that is NULL as a whole is NULL for every row; no id is given twice. Answers a row for each
-- ordinal that was not simply created to wait: the execution it stands for, whether this call created it.
CREATE FUNCTION ff.create_execution(
    shape_namespace text[], shape_lane_id text[], shape_execution_kind text[],
    shape_required_capabilities text[], shape_payload_encoding text[],
    shape_creator_identity text[], shape_policy jsonb[],
    given_partition_key smallint[], given_execution_id uuid[], given_shape integer[],
    given_payload bytea[], given_priority integer[],
    given_delay_ms bigint[], given_delay_until_ms bigint[],
    given_deadline_ms bigint[], given_deadline_at_ms bigint[],
    given_idempotency_key text[], given_dedup_window_ms bigint[], given_tags jsonb[],
    given_now_ms bigint DEFAULT NULL
) RETURNS TABLE (ordinal bigint, partition_key smallint, execution_id uuid, created boolean, public_state text)
    LANGUAGE plpgsql VOLATILE
    AS $$
#variable_conflict use_column
DECLARE
    called_at_ms constant bigint := coalesce(given_now_ms, ff.now_ms());
    routes bigint[] := '{}';
    stands_for uuid[] := given_execution_id;
    new_partitions smallint[];
    new_ids uuid[];
    all_new boolean;
    at_once boolean;
    unknown boolean := false;
BEGIN
    FOR shape IN 1 .. cardinality(shape_lane_id) LOOP
        routes := routes || ff.route_id(shape_namespace[shape], shape_lane_id[shape],
            shape_execution_kind[shape], string_to_array(shape_required_capabilities[shape], ','));
        unknown := unknown OR NOT EXISTS (SELECT FROM ff.route WHERE route_id = routes[shape]);
    END LOOP;
    IF unknown THEN
        INSERT INTO ff.lane_registry (lane_id, registered_at_ms, registered_by)
        SELECT DISTINCT lane_id, called_at_ms, 'create_execution' FROM unnest(shape_lane_id) AS lane_id
         ORDER BY lane_id
            ON CONFLICT DO NOTHING;
        INSERT INTO ff.route (route_id, namespace, lane_id, execution_kind, required_capabilities)
        SELECT DISTINCT s.route_id, s.namespace, s.lane_id, s.kind, string_to_array(s.caps, ',')
          FROM unnest(routes, shape_namespace, shape_lane_id, shape_execution_kind,
                      shape_required_capabilities) AS s (route_id, namespace, lane_id, kind, caps)
         ORDER BY s.route_id
            ON CONFLICT DO NOTHING;
    END IF;

    IF given_idempotency_key IS NOT NULL THEN
        -- The first live record of a key decides, also between concurrent callers: the second one
        -- waits on the unique key and then finds it taken. Ascending keys, so that batches never deadlock.
        INSERT INTO ff.exec_idempotency AS kept
               (partition_key, namespace, idempotency_key, execution_id, expires_at_ms)
        SELECT DISTINCT ON (g.partition_key, shape_namespace[g.shape], g.idempotency_key)
               g.partition_key, shape_namespace[g.shape], g.idempotency_key, g.execution_id,
               called_at_ms + g.dedup_window_ms
          FROM unnest(given_partition_key, given_execution_id, given_shape, given_idempotency_key,
                      given_dedup_window_ms) WITH ORDINALITY
               AS g (partition_key, execution_id, shape, idempotency_key, dedup_window_ms, ordinal)
         WHERE g.idempotency_key IS NOT NULL
           AND NOT EXISTS (SELECT FROM ff.exec_core e
                            WHERE (e.partition_key, e.execution_id) = (g.partition_key, g.execution_id))
         ORDER BY g.partition_key, shape_namespace[g.shape], g.idempotency_key, g.ordinal
            ON CONFLICT (partition_key, namespace, idempotency_key) DO UPDATE
               SET execution_id = EXCLUDED.execution_id, expires_at_ms = EXCLUDED.expires_at_ms
             WHERE kept.expires_at_ms <= called_at_ms;
        stands_for := ARRAY(
            SELECT coalesce((SELECT k.execution_id FROM ff.exec_idempotency k
                              WHERE (k.partition_key, k.namespace, k.idempotency_key)
                                  = (g.partition_key, shape_namespace[g.shape], g.idempotency_key)
                                AND k.expires_at_ms > called_at_ms),
                            g.execution_id)
              FROM unnest(given_partition_key, given_execution_id, given_shape, given_idempotency_key)
                   WITH ORDINALITY AS g (partition_key, execution_id, shape, idempotency_key, ordinal)
             ORDER BY g.ordinal);
    END IF;

    INSERT INTO ff.exec_core (
           partition_key, execution_id, route_id, created_at_ms, last_mutation_at_ms, priority,
           eligibility_state, blocking_reason, delay_until_ms, deadline_at_ms, tags)
    SELECT g.partition_key, g.execution_id, routes[g.shape], called_at_ms, called_at_ms,
           greatest(0, least(9000, coalesce(g.priority, 0))),
           CASE WHEN until.ms > called_at_ms THEN 'not_eligible_until_time' ELSE 'eligible_now' END,
           CASE WHEN until.ms > called_at_ms THEN 'waiting_for_delay' ELSE 'waiting_for_worker' END,
           CASE WHEN until.ms > called_at_ms THEN until.ms END,
           coalesce(g.deadline_at_ms, called_at_ms + g.deadline_ms, called_at_ms
               + (shape_policy[g.shape] #>> '{timeout_policy,execution_deadline_ms}')::bigint),
           coalesce(g.tags, '{}')
      FROM unnest(given_partition_key, given_execution_id, given_shape, given_priority, given_delay_ms,
                  given_delay_until_ms, given_deadline_ms, given_deadline_at_ms, given_tags, stands_for)
           AS g (partition_key, execution_id, shape, priority, delay_ms, delay_until_ms, deadline_ms,
                 deadline_at_ms, tags, stands_for),
           LATERAL (SELECT coalesce(g.delay_until_ms, called_at_ms + g.delay_ms)) AS until (ms)
     WHERE g.stands_for = g.execution_id
        ON CONFLICT DO NOTHING;

    -- An execution whose body this call stores is one that this call created.
    WITH stored AS (
        INSERT INTO ff.exec_body (
               partition_key, execution_id, created_at_ms, payload, payload_encoding,
               creator_identity, idempotency_key, policy)
        SELECT g.partition_key, g.execution_id, called_at_ms, g.payload,
               shape_payload_encoding[g.shape], shape_creator_identity[g.shape], g.idempotency_key,
               shape_policy[g.shape]
          FROM unnest(given_partition_key, given_execution_id, given_shape, given_payload,
                      given_idempotency_key, stands_for)
               AS g (partition_key, execution_id, shape, payload, idempotency_key, stands_for)
         WHERE g.stands_for = g.execution_id
            ON CONFLICT DO NOTHING
     RETURNING partition_key, execution_id
    )
    SELECT array_agg(partition_key), array_agg(execution_id) INTO new_partitions, new_ids FROM stored;
    all_new := cardinality(new_ids) = cardinality(given_execution_id);
    at_once := all_new AND given_delay_ms IS NULL AND given_delay_until_ms IS NULL;

    IF given_tags IS NOT NULL THEN
        INSERT INTO ff.exec_tag (partition_key, execution_id, tag_key, tag_value, created_at_ms)
        SELECT g.partition_key, g.execution_id, t.key, t.value, called_at_ms
          FROM unnest(given_partition_key, given_execution_id, given_tags)
               AS g (partition_key, execution_id, tags), jsonb_each_text(g.tags) AS t
         WHERE all_new OR (g.partition_key, g.execution_id) IN (SELECT * FROM unnest(new_partitions, new_ids));
    END IF;

    -- Whoever waits for work on a lane that has some now.
    IF at_once AND cardinality(shape_lane_id) = 1 THEN
        PERFORM ff.wake('lane:' || shape_lane_id[1]);
    ELSE
        PERFORM ff.wake('lane:' || lane_id)
           FROM (SELECT DISTINCT shape_lane_id[g.shape] AS lane_id
                   FROM unnest(given_partition_key, given_execution_id, given_shape, given_delay_ms,
                               given_delay_until_ms)
                        AS g (partition_key, execution_id, shape, delay_ms, delay_until_ms)
                  WHERE coalesce(g.delay_until_ms, called_at_ms + g.delay_ms, 0) <= called_at_ms
                    AND (all_new OR (g.partition_key, g.execution_id) IN (
                             SELECT * FROM unnest(new_partitions, new_ids)))) AS lanes;
    END IF;

    IF at_once THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT told.*
      FROM (SELECT g.ordinal, g.partition_key, g.stands_for,
                   g.stands_for = g.execution_id AND (all_new OR (g.partition_key, g.execution_id) IN (
                       SELECT * FROM unnest(new_partitions, new_ids))) IS TRUE AS created,
                   CASE WHEN coalesce(g.delay_until_ms, called_at_ms + g.delay_ms, 0) > called_at_ms
                        THEN 'delayed' ELSE 'waiting' END AS public_state
              FROM unnest(given_partition_key, given_execution_id, given_delay_ms,
                          given_delay_until_ms, stands_for) WITH ORDINALITY
                   AS g (partition_key, execution_id, delay_ms, delay_until_ms, stands_for, ordinal)
           ) AS told
     WHERE NOT told.created OR told.public_state = 'delayed';
END
$$;

-- Why a policy cannot be honoured, or NULL. The fields that the database itself reads: a value that one
-- of its statements could not take must never be stored.
CREATE FUNCTION ff.policy_fault(policy jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
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
        'delay_until', 'dedup_window_ms', 'max_reclaim_count', 'max_replay_count', 'retry_policy.max_retries',
        'retry_policy.backoff.delay_ms', 'retry_policy.backoff.initial_delay_ms',
        'retry_policy.backoff.max_delay_ms', 'timeout_policy.attempt_timeout_ms',
        'timeout_policy.execution_deadline_ms', 'timeout_policy.max_reclaim_count'] LOOP
        found := policy #> string_to_array(path, '.');
        largest := CASE WHEN path LIKE '%\_ms' OR path = 'delay_until' THEN 32503680000000 ELSE 2147483647 END;
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
    FOREACH path IN ARRAY ARRAY['retry_policy.retryable_categories', 'routing_requirements.required_capabilities'] LOOP
        found := policy #> string_to_array(path, '.');
        IF jsonb_typeof(found) <> 'array'
           OR EXISTS (SELECT FROM jsonb_path_query(found, '$[*]') e WHERE jsonb_typeof(e) <> 'string') THEN
            RETURN path || ': not a list of texts';
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- Submit one execution from plain SQL, a trigger or any driver; part of the caller's transaction.
CREATE FUNCTION ff.submit(
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
    policy jsonb DEFAULT NULL
) RETURNS text
    LANGUAGE plpgsql VOLATILE
    AS $$
DECLARE
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    minted constant uuid := gen_random_uuid();
    home constant smallint := CASE WHEN idempotency_key IS NOT NULL
        THEN ff.key_partition(namespace, idempotency_key, partitions)
        ELSE (get_byte(uuid_send(minted), 15) % partitions)::smallint END;
    capabilities text[];
    fault text := ff.policy_fault(policy);
    answer record;
BEGIN
    IF kind IS NULL OR kind = '' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: kind must not be empty';
    END IF;
    IF octet_length(lane) NOT BETWEEN 1 AND 64 OR lane !~ '^[ -~]+$' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_input: lane %L must be 1 to 64 printable ASCII bytes', lane);
    END IF;
    IF fault IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_policy_json: %s', fault);
    END IF;
    IF jsonb_typeof(tags) <> 'object'
       OR EXISTS (SELECT FROM jsonb_each(tags) t WHERE jsonb_typeof(t.value) <> 'string') THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: tags must map keys to text';
    END IF;
    capabilities := ARRAY(
        SELECT DISTINCT c COLLATE "C" FROM unnest(requires || ARRAY(SELECT jsonb_array_elements_text(
            policy #> '{routing_requirements,required_capabilities}'))) c ORDER BY 1);
    IF cardinality(capabilities) > 256 OR octet_length(array_to_string(capabilities, ',')) > 4096
       OR EXISTS (SELECT FROM unnest(capabilities) c WHERE c IS NULL OR c = '' OR c ~ '[\x01-\x20\x7f,]') THEN
        RAISE invalid_parameter_value USING MESSAGE = format('invalid_capabilities: required: %s', left(requires::text, 200));
    END IF;
    SELECT * INTO answer FROM ff.create_execution(
        ARRAY[namespace], ARRAY[lane], ARRAY[kind], ARRAY[array_to_string(capabilities, ',')],
        ARRAY['json'], ARRAY['sql:' || session_user], ARRAY[policy],
        ARRAY[home],
        ARRAY[minted], ARRAY[1], ARRAY[convert_to(payload::text, 'UTF8')], ARRAY[priority],
        ARRAY[(extract(epoch FROM delay) * 1000)::bigint],
        CASE WHEN delay IS NULL THEN ARRAY[(policy ->> 'delay_until')::bigint] END,
        ARRAY[(extract(epoch FROM deadline) * 1000)::bigint], NULL,
        CASE WHEN idempotency_key IS NOT NULL THEN ARRAY[idempotency_key] END,
        ARRAY[coalesce((policy ->> 'dedup_window_ms')::bigint, 86400000)],
        CASE WHEN tags IS NOT NULL THEN ARRAY[tags] END);
    RETURN format('{fp:%s}:%s', home, coalesce(answer.execution_id, minted));
END
$$;
