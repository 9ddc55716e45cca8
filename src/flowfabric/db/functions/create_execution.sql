-- Creates executions, many in one call; the engine and ff.submit both use it. Columns that executions of
-- a batch have in common (route, encoding, creator, policy) are given once as a shape, and each execution
-- names its shape by a 1-based number. An array that is NULL as a whole is NULL for every execution, and
-- without shape numbers every execution has the first shape. An id may be given only once in a call.
--
-- An execution that exists already, or whose idempotency key belongs to another execution, is not
-- created. If a new execution is for a lane that is draining or disabled, the whole call is refused with
-- SQLSTATE FF001; if its delay or its deadline has passed, with SQLSTATE 22023. An execution given as held
-- is created blocked by dependencies; its edges follow in the same transaction.
--
-- Of each limit and key the first executions of the call are claimable, as many as may run at once or start
-- in a window, and the rest is held back from the beginning: a flood of one key does not fill the queue. No
-- key is locked, so that a transaction that submits does not stop a key until it commits. The claim decides
-- what runs. A limit that does not exist is refused with SQLSTATE 22023.
--
-- With a unique scope, the idempotency key belongs to its execution until that has started or ended, instead
-- of for a window.
--
-- given_fresh promises that the caller has just made the ids and sends them for the first time, so that no
-- row has them and no other transaction inserts them. The executions are then stored by a plain INSERT: no
-- search for a row with the same id before, no confirmation of the row in the WAL after. A repetition after
-- a lost answer is not fresh. A broken promise is an error: SQLSTATE 23505.
--
-- Returns a row for each ordinal, except those that were created in the state waiting: the execution that
-- the ordinal resolves to (the given one, or the earlier one of its idempotency key), whether this call
-- created it, and what the earlier execution of the key has otherwise: kind, payload, both or nothing.
--
-- The planner settings are bound, because SQL clients and other drivers call ff.submit on connections
-- without our settings. The plans of a function are cached: a plan made while a table was small would
-- otherwise read the whole table when it has grown. Every statement has one plan for any arguments.
CREATE OR REPLACE FUNCTION ff.create_execution(
    shape_namespace text[], shape_lane_id text[], shape_execution_kind text[],
    shape_required_capabilities text[], shape_payload_encoding text[],
    shape_creator_identity text[], shape_policy jsonb[],
    given_partition_key smallint[], given_execution_id uuid[], given_shape integer[],
    given_payload bytea[], given_priority integer[],
    given_delay_ms bigint[], given_delay_until_ms bigint[],
    given_deadline_ms bigint[], given_deadline_at_ms bigint[],
    given_idempotency_key text[], given_dedup_window_ms bigint[], given_tags jsonb[],
    given_now_ms bigint DEFAULT NULL, given_flow_id uuid[] DEFAULT NULL,
    given_held boolean[] DEFAULT NULL, given_member_name text[] DEFAULT NULL,
    given_fresh boolean DEFAULT false, given_quota_policy_id uuid[] DEFAULT NULL,
    given_quota_dimension text[] DEFAULT NULL, given_unique_scope text[] DEFAULT NULL
) RETURNS TABLE (ordinal bigint, partition_key smallint, execution_id uuid, created boolean, public_state text,
                 differs text[])
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    now_ms constant bigint := coalesce(given_now_ms, ff.now_ms());
    last_ms constant bigint := 253402300799999;
    routes bigint[] := '{}';
    policy_deadlines bigint[] := '{}';
    budgets text[];             -- the budgets of each shape, as an array in words; NULL if no shape has any
    any_instant boolean := given_delay_until_ms IS NOT NULL OR given_deadline_ms IS NOT NULL
                           OR given_deadline_at_ms IS NOT NULL;
    resolved_ids uuid[] := given_execution_id;
    new_partitions smallint[];
    new_ids uuid[];
    until bigint[];             -- when the delays end; NULL if there are none
    all_new boolean;
    all_claimable boolean := given_delay_ms IS NULL AND given_delay_until_ms IS NULL AND given_held IS NULL;
    any_new_route boolean := false;
    -- New, of one shape, and with nothing but ids and payloads: most submits. See below.
    plain boolean := given_fresh AND given_shape IS NULL AND cardinality(shape_lane_id) = 1
                     AND num_nonnulls(given_priority, given_delay_ms, given_delay_until_ms, given_deadline_ms,
                                      given_deadline_at_ms, given_idempotency_key, given_tags, given_flow_id,
                                      given_held, given_member_name, given_quota_policy_id,
                                      given_quota_dimension) = 0;
    closed_lanes constant text[] := ARRAY(SELECT l.lane_id FROM ff.lane_registry l
                                           WHERE l.lane_id = ANY (shape_lane_id)
                                             AND l.lane_state IN ('draining', 'disabled'));
    closed_lane text;
    refusal text;
    quota_keys bigint[];        -- of the executions that have a limit; NULL if none has
    over boolean[];             -- those that their limit holds back
BEGIN
    IF last_ms < ANY (given_delay_until_ms) OR last_ms - now_ms < ANY (given_delay_ms) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: delay must end before the year 10000';
    END IF;
    IF 0 > ANY (given_delay_ms) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: delay must not be negative';
    END IF;
    IF last_ms < ANY (given_deadline_at_ms) OR last_ms - now_ms < ANY (given_deadline_ms) THEN
        RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: deadline must be before the year 10000';
    END IF;

    IF given_shape IS NULL THEN
        given_shape := array_fill(1, ARRAY[cardinality(given_execution_id)]);
    END IF;
    FOR shape IN 1 .. cardinality(shape_lane_id) LOOP
        routes := routes || ff.route_id(shape_namespace[shape], shape_lane_id[shape],
            shape_execution_kind[shape], string_to_array(shape_required_capabilities[shape], ','));
        any_new_route := any_new_route OR NOT EXISTS (SELECT FROM ff.route WHERE route_id = routes[shape]);
        policy_deadlines[shape] := ff.policy_number(
            shape_policy[shape] #> '{timeout_policy,execution_deadline_ms}', 3153600000000);
        any_instant := any_instant OR policy_deadlines[shape] IS NOT NULL;
        IF jsonb_typeof(shape_policy[shape] -> 'budget_ids') = 'array'
           AND shape_policy[shape] -> 'budget_ids' <> '[]' THEN
            budgets[shape] := ARRAY(SELECT DISTINCT ff.budget_id(b)
                                      FROM jsonb_array_elements_text(shape_policy[shape] -> 'budget_ids') b
                                     WHERE b <> '' ORDER BY 1)::text;
        END IF;
    END LOOP;
    IF any_new_route THEN
        INSERT INTO ff.lane_registry (lane_id, registered_at_ms, registered_by)
        SELECT DISTINCT lane_id, now_ms, 'create_execution' FROM unnest(shape_lane_id) AS lane_id
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
        -- The first unexpired record of a key decides, also between concurrent callers: the second
        -- caller waits for the first on the unique key, and then conflicts with its record. Keys are
        -- inserted in ascending order, so that batches do not deadlock.
        INSERT INTO ff.exec_idempotency AS existing
               (partition_key, namespace, idempotency_key, execution_id, expires_at_ms, scope)
        SELECT DISTINCT ON (g.partition_key, shape_namespace[g.shape], g.idempotency_key)
               g.partition_key, shape_namespace[g.shape], g.idempotency_key, g.execution_id,
               CASE WHEN g.scope IS NULL THEN now_ms + g.dedup_window_ms ELSE last_ms END,
               coalesce(g.scope, 'window')
          FROM unnest(given_partition_key, given_execution_id, given_shape, given_idempotency_key,
                      given_dedup_window_ms, given_unique_scope) WITH ORDINALITY
               AS g (partition_key, execution_id, shape, idempotency_key, dedup_window_ms, scope, ordinal)
         WHERE g.idempotency_key IS NOT NULL
           AND (given_fresh OR NOT EXISTS (
                    SELECT FROM ff.exec_core e
                     WHERE (e.partition_key, e.execution_id) = (g.partition_key, g.execution_id)))
         ORDER BY g.partition_key, shape_namespace[g.shape], g.idempotency_key, g.ordinal
            ON CONFLICT (partition_key, namespace, idempotency_key) DO UPDATE
               SET execution_id = EXCLUDED.execution_id, expires_at_ms = EXCLUDED.expires_at_ms,
                   scope = EXCLUDED.scope
             WHERE existing.scope = 'window' AND existing.expires_at_ms <= now_ms;
        FOR pass IN 1 .. 2 LOOP
            resolved_ids := ARRAY(
                SELECT coalesce((SELECT k.execution_id FROM ff.exec_idempotency k
                                  WHERE (k.partition_key, k.namespace, k.idempotency_key)
                                      = (g.partition_key, shape_namespace[g.shape], g.idempotency_key)
                                    AND k.expires_at_ms > now_ms),
                                g.execution_id)
                  FROM unnest(given_partition_key, given_execution_id, given_shape, given_idempotency_key)
                       WITH ORDINALITY AS g (partition_key, execution_id, shape, idempotency_key, ordinal)
                 ORDER BY g.ordinal);
            EXIT WHEN pass = 2 OR resolved_ids = given_execution_id;
            -- A unique key whose execution has started, or ended, is free. The insert has locked the record. It
            -- may have waited for the transaction that made the record, and did not see its execution: so the
            -- execution is looked at by a command of its own.
            UPDATE ff.exec_idempotency k
               SET execution_id = g.execution_id, scope = coalesce(g.scope, 'window'),
                   expires_at_ms = CASE WHEN g.scope IS NULL THEN now_ms + g.dedup_window_ms ELSE last_ms END
              FROM (SELECT DISTINCT ON (g.partition_key, shape_namespace[g.shape], g.idempotency_key) g.*,
                           shape_namespace[g.shape] AS namespace
                      FROM unnest(given_partition_key, given_execution_id, given_shape, given_idempotency_key,
                                  given_dedup_window_ms, given_unique_scope) WITH ORDINALITY
                           AS g (partition_key, execution_id, shape, idempotency_key, dedup_window_ms, scope,
                                 ordinal)
                     WHERE g.idempotency_key IS NOT NULL
                       AND (given_fresh OR NOT EXISTS (
                                SELECT FROM ff.exec_core e
                                 WHERE (e.partition_key, e.execution_id) = (g.partition_key, g.execution_id)))
                     ORDER BY g.partition_key, shape_namespace[g.shape], g.idempotency_key, g.ordinal) AS g
             WHERE (k.partition_key, k.namespace, k.idempotency_key)
                 = (g.partition_key, g.namespace, g.idempotency_key)
               AND k.scope <> 'window' AND k.execution_id <> g.execution_id
               AND NOT ff.key_stands(k.partition_key, k.execution_id, k.scope);
            EXIT WHEN NOT FOUND;
        END LOOP;
    END IF;

    IF given_delay_ms IS NOT NULL OR given_delay_until_ms IS NOT NULL THEN
        until := ARRAY(SELECT coalesce(g.delay_until_ms, now_ms + g.delay_ms)
                         FROM unnest(given_delay_until_ms, given_delay_ms) AS g (delay_until_ms, delay_ms));
    END IF;
    IF given_quota_policy_id IS NOT NULL THEN
        SELECT format('limit %s does not exist', g.quota_policy_id) INTO refusal
          FROM (SELECT DISTINCT unnest(given_quota_policy_id) AS quota_policy_id) AS g
         WHERE NOT EXISTS (SELECT FROM ff.quota_policy p WHERE p.quota_policy_id = g.quota_policy_id)
           AND g.quota_policy_id IS NOT NULL
         LIMIT 1;
        IF refusal IS NOT NULL THEN
            RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: ' || refusal;
        END IF;
        quota_keys := ARRAY(
            SELECT CASE WHEN g.policy IS NOT NULL THEN ff.quota_key_id(g.policy, coalesce(g.dimension, '')) END
              FROM unnest(given_quota_policy_id, given_quota_dimension) WITH ORDINALITY
                   AS g (policy, dimension, ordinal)
             ORDER BY g.ordinal);
        over := ARRAY(
            SELECT g.waits AND p.n < row_number() OVER (
                       PARTITION BY g.quota_key_id, g.waits ORDER BY coalesce(g.priority, 0) DESC, g.execution_id)
              FROM (SELECT g.*, g.quota_key_id IS NOT NULL AND g.held IS NOT TRUE
                               AND coalesce(g.until_ms, 0) <= now_ms AND g.resolved_id = g.execution_id AS waits
                      FROM unnest(quota_keys, given_quota_policy_id, given_execution_id, resolved_ids,
                                  given_priority, given_held, until) WITH ORDINALITY
                           AS g (quota_key_id, policy, execution_id, resolved_id, priority, held, until_ms, ordinal)
                   ) AS g
              LEFT JOIN LATERAL (
                   SELECT least(nullif(p.active_concurrency_cap, 0), nullif(p.max_requests_per_window, 0)) AS n
                     FROM ff.quota_policy p WHERE p.quota_policy_id = g.policy LIMIT 1) AS p ON true
             ORDER BY g.ordinal);
        all_claimable := all_claimable AND true <> ALL (over);
    END IF;
    IF plain AND NOT any_instant AND budgets IS NULL THEN
        -- As the next branch. A submit of one execution costs as much as its statements have expressions.
        INSERT INTO ff.exec_core (partition_key, execution_id, route_id, created_at_ms, last_mutation_at_ms,
                                  eligibility_state, blocking_reason)
        SELECT unnest(given_partition_key), unnest(given_execution_id), routes[1], now_ms, now_ms,
               'eligible_now', 'waiting_for_worker';
        INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id)
        SELECT routes[1], now_ms, 0, unnest(given_partition_key), unnest(given_execution_id);
        INSERT INTO ff.exec_body (partition_key, execution_id, created_at_ms, payload, payload_encoding,
                                  creator_identity, policy)
        SELECT unnest(given_partition_key), unnest(given_execution_id), now_ms, unnest(given_payload),
               shape_payload_encoding[1], shape_creator_identity[1], shape_policy[1];
        all_new := true;
    ELSIF given_fresh AND (given_idempotency_key IS NULL OR resolved_ids = given_execution_id) THEN
        -- unnest is in the select list, where its rows are not copied into a temporary store.
        INSERT INTO ff.exec_core (
               partition_key, execution_id, route_id, created_at_ms, last_mutation_at_ms, priority,
               eligibility_state, blocking_reason, delay_until_ms, not_before_ms, deadline_at_ms, tags, flow_id,
               quota_key_id, budget_ids)
        SELECT g.partition_key, g.execution_id, routes[g.shape], now_ms, now_ms,
               greatest(0, least(9000, coalesce(g.priority, 0))),
               CASE WHEN g.held THEN 'blocked_by_dependencies'
                    WHEN g.until_ms > now_ms THEN 'not_eligible_until_time'
                    WHEN g.over THEN 'blocked_by_quota' ELSE 'eligible_now' END,
               CASE WHEN g.held THEN 'waiting_for_children'
                    WHEN g.until_ms > now_ms THEN 'waiting_for_delay'
                    WHEN g.over THEN 'waiting_for_quota' ELSE 'waiting_for_worker' END,
               CASE WHEN g.until_ms > now_ms AND g.held IS NOT TRUE THEN g.until_ms END,
               CASE WHEN g.until_ms > now_ms AND g.held THEN g.until_ms END,
               coalesce(g.deadline_at_ms, now_ms + coalesce(g.deadline_ms, policy_deadlines[g.shape])),
               coalesce(g.tags, '{}'), g.flow_id, g.quota_key_id, budgets[g.shape]::uuid[]
          FROM (SELECT unnest(given_partition_key) AS partition_key,
                       unnest(given_execution_id) AS execution_id, unnest(given_shape) AS shape,
                       unnest(given_priority) AS priority, unnest(given_deadline_ms) AS deadline_ms,
                       unnest(given_deadline_at_ms) AS deadline_at_ms, unnest(given_tags) AS tags,
                       unnest(given_flow_id) AS flow_id, unnest(given_held) AS held,
                       unnest(until) AS until_ms, unnest(quota_keys) AS quota_key_id, unnest(over) AS over) AS g;
        INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms,
                              quota_key_id, queued_by, budget_ids)
        SELECT routes[g.shape], now_ms, greatest(0, least(9000, coalesce(g.priority, 0))), g.partition_key,
               g.execution_id,
               coalesce(g.deadline_at_ms, now_ms + coalesce(g.deadline_ms, policy_deadlines[g.shape])),
               g.quota_key_id, CASE WHEN g.quota_key_id IS NOT NULL THEN pg_current_xact_id() END,
               budgets[g.shape]::uuid[]
          FROM (SELECT unnest(given_partition_key) AS partition_key,
                       unnest(given_execution_id) AS execution_id, unnest(given_shape) AS shape,
                       unnest(given_priority) AS priority, unnest(given_deadline_ms) AS deadline_ms,
                       unnest(given_deadline_at_ms) AS deadline_at_ms, unnest(given_held) AS held,
                       unnest(until) AS until_ms, unnest(quota_keys) AS quota_key_id, unnest(over) AS over) AS g
         WHERE g.held IS NOT TRUE AND coalesce(g.until_ms, 0) <= now_ms AND g.over IS NOT TRUE;
        INSERT INTO ff.exec_body (
               partition_key, execution_id, created_at_ms, payload, payload_encoding,
               creator_identity, idempotency_key, policy, member_name, quota_policy_id, quota_dimension)
        SELECT g.partition_key, g.execution_id, now_ms, g.payload,
               shape_payload_encoding[g.shape], shape_creator_identity[g.shape], g.idempotency_key,
               shape_policy[g.shape], g.member_name, g.quota_policy_id, g.quota_dimension
          FROM (SELECT unnest(given_partition_key) AS partition_key,
                       unnest(given_execution_id) AS execution_id, unnest(given_shape) AS shape,
                       unnest(given_payload) AS payload, unnest(given_idempotency_key) AS idempotency_key,
                       unnest(given_member_name) AS member_name,
                       unnest(given_quota_policy_id) AS quota_policy_id,
                       unnest(given_quota_dimension) AS quota_dimension) AS g;
        all_new := true;
    ELSE
        -- In ascending order of the ids: two calls with the same ids in different orders would otherwise wait
        -- for each other on the primary key.
        WITH created AS (
            INSERT INTO ff.exec_core (
                   partition_key, execution_id, route_id, created_at_ms, last_mutation_at_ms, priority,
                   eligibility_state, blocking_reason, delay_until_ms, not_before_ms, deadline_at_ms, tags, flow_id,
                   quota_key_id, budget_ids)
            SELECT g.partition_key, g.execution_id, routes[g.shape], now_ms, now_ms,
                   greatest(0, least(9000, coalesce(g.priority, 0))),
                   CASE WHEN g.held THEN 'blocked_by_dependencies'
                        WHEN until.ms > now_ms THEN 'not_eligible_until_time'
                        WHEN g.over THEN 'blocked_by_quota' ELSE 'eligible_now' END,
                   CASE WHEN g.held THEN 'waiting_for_children'
                        WHEN until.ms > now_ms THEN 'waiting_for_delay'
                        WHEN g.over THEN 'waiting_for_quota' ELSE 'waiting_for_worker' END,
                   CASE WHEN until.ms > now_ms AND g.held IS NOT TRUE THEN until.ms END,
                   CASE WHEN until.ms > now_ms AND g.held THEN until.ms END,
                   coalesce(g.deadline_at_ms, now_ms + coalesce(g.deadline_ms, policy_deadlines[g.shape])),
                   coalesce(g.tags, '{}'), g.flow_id, g.quota_key_id, budgets[g.shape]::uuid[]
              FROM unnest(given_partition_key, given_execution_id, given_shape, given_priority, given_delay_ms,
                          given_delay_until_ms, given_deadline_ms, given_deadline_at_ms, given_tags, given_flow_id,
                          given_held, resolved_ids, quota_keys, over)
                   AS g (partition_key, execution_id, shape, priority, delay_ms, delay_until_ms, deadline_ms,
                         deadline_at_ms, tags, flow_id, held, resolved_id, quota_key_id, over),
                   LATERAL (SELECT coalesce(g.delay_until_ms, now_ms + g.delay_ms)) AS until (ms)
             WHERE g.resolved_id = g.execution_id
             ORDER BY g.partition_key, g.execution_id
                ON CONFLICT DO NOTHING
            RETURNING route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms, quota_key_id,
                      budget_ids, eligibility_state
        )
        INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms,
                              quota_key_id, queued_by, budget_ids)
        SELECT route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms, quota_key_id,
               CASE WHEN quota_key_id IS NOT NULL THEN pg_current_xact_id() END, budget_ids
          FROM created WHERE eligibility_state = 'eligible_now';

        -- This call created exactly the executions whose body it stores.
        WITH stored AS (
            INSERT INTO ff.exec_body (
                   partition_key, execution_id, created_at_ms, payload, payload_encoding,
                   creator_identity, idempotency_key, policy, member_name, quota_policy_id, quota_dimension)
            SELECT g.partition_key, g.execution_id, now_ms, g.payload,
                   shape_payload_encoding[g.shape], shape_creator_identity[g.shape], g.idempotency_key,
                   shape_policy[g.shape], g.member_name, g.quota_policy_id, g.quota_dimension
              FROM unnest(given_partition_key, given_execution_id, given_shape, given_payload,
                          given_idempotency_key, given_member_name, resolved_ids, given_quota_policy_id,
                          given_quota_dimension)
                   AS g (partition_key, execution_id, shape, payload, idempotency_key, member_name, resolved_id,
                         quota_policy_id, quota_dimension)
             WHERE g.resolved_id = g.execution_id
                ON CONFLICT DO NOTHING
         RETURNING partition_key, execution_id
        )
        SELECT array_agg(partition_key), array_agg(execution_id) INTO new_partitions, new_ids FROM stored;
        all_new := coalesce(cardinality(new_ids), 0) = cardinality(given_execution_id);
        IF NOT all_new AND true = ANY (over) THEN
            -- Those that would be claimable may exist already: a sweep lets the others go if there is room.
            INSERT INTO ff.quota_wakeup (partition_key, quota_key_id)
            SELECT g.partition_key, g.quota_key_id
              FROM unnest(given_partition_key, quota_keys, over) AS g (partition_key, quota_key_id, over)
             WHERE g.over;
        END IF;
    END IF;
    all_claimable := all_new AND all_claimable;

    -- Only new executions are refused: an execution that exists is a duplicate, whatever its lane's state.
    IF cardinality(closed_lanes) > 0 THEN
        SELECT l.lane_id, format('lane ''%s'' is %s', l.lane_id, l.lane_state) INTO closed_lane, refusal
          FROM unnest(given_partition_key, given_execution_id, given_shape)
               AS g (partition_key, execution_id, shape)
          JOIN ff.lane_registry l ON l.lane_id = shape_lane_id[g.shape]
         WHERE l.lane_id = ANY (closed_lanes)
           AND (all_new OR (g.partition_key, g.execution_id) IN (
                    SELECT * FROM unnest(new_partitions, new_ids)))
         ORDER BY l.lane_id LIMIT 1;
        IF refusal IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'FF001', MESSAGE = refusal,
                HINT = format('The lane takes no new executions. Open it with: ff lanes resume %L', closed_lane);
        END IF;
    END IF;

    IF any_instant THEN
        SELECT CASE WHEN g.delay_until_ms < now_ms
                    THEN format('delay_until %s is in the past', ff.iso_instant(g.delay_until_ms))
                    WHEN g.deadline_at_ms IS NULL THEN 'deadline must leave some time'
                    ELSE format('execution_deadline_at %s is in the past', ff.iso_instant(g.deadline_at_ms))
                    END INTO refusal
          FROM unnest(given_partition_key, given_execution_id, given_shape, given_delay_until_ms,
                      given_deadline_ms, given_deadline_at_ms)
               AS g (partition_key, execution_id, shape, delay_until_ms, deadline_ms, deadline_at_ms)
         WHERE (g.delay_until_ms < now_ms OR coalesce(
                    g.deadline_at_ms, now_ms + coalesce(g.deadline_ms, policy_deadlines[g.shape])) <= now_ms)
           AND (all_new OR (g.partition_key, g.execution_id) IN (
                    SELECT * FROM unnest(new_partitions, new_ids)))
         LIMIT 1;
        IF refusal IS NOT NULL THEN
            RAISE invalid_parameter_value USING MESSAGE = 'invalid_input: ' || refusal;
        END IF;
    END IF;

    IF given_tags IS NOT NULL THEN
        INSERT INTO ff.exec_tag (partition_key, execution_id, tag_key, tag_value, created_at_ms)
        SELECT g.partition_key, g.execution_id, t.key, t.value, now_ms
          FROM unnest(given_partition_key, given_execution_id, given_tags)
               AS g (partition_key, execution_id, tags), jsonb_each_text(g.tags) AS t
         WHERE t.key <> 'ff.traceparent'  -- nobody searches by it
           AND (all_new OR (g.partition_key, g.execution_id) IN (SELECT * FROM unnest(new_partitions, new_ids)));
    END IF;

    -- Wake the workers of the lanes that have new claimable executions.
    IF all_claimable AND cardinality(shape_lane_id) = 1 THEN
        PERFORM ff.wake('lane:' || shape_lane_id[1]);
    ELSE
        PERFORM ff.wake('lane:' || lane_id)
           FROM (SELECT DISTINCT shape_lane_id[g.shape] AS lane_id
                   FROM unnest(given_partition_key, given_execution_id, given_shape, given_delay_ms,
                               given_delay_until_ms, given_held)
                        AS g (partition_key, execution_id, shape, delay_ms, delay_until_ms, held)
                  WHERE g.held IS NOT TRUE AND coalesce(g.delay_until_ms, now_ms + g.delay_ms, 0) <= now_ms
                    AND (all_new OR (g.partition_key, g.execution_id) IN (
                             SELECT * FROM unnest(new_partitions, new_ids)))) AS lanes;
    END IF;

    IF all_claimable THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT answer.ordinal, answer.partition_key, answer.resolved_id, answer.created, answer.public_state,
           CASE WHEN answer.resolved_id <> answer.execution_id THEN
               (SELECT array_remove(ARRAY[
                       CASE WHEN r.execution_kind <> shape_execution_kind[answer.shape] THEN 'kind' END,
                       CASE WHEN NOT ff.same_payload(
                                     coalesce(b.submitted_payload, b.payload),
                                     CASE WHEN b.submitted_payload IS NULL THEN b.payload_encoding
                                          ELSE b.submitted_encoding END,
                                     given_payload[answer.ordinal],
                                     shape_payload_encoding[answer.shape]) THEN 'payload' END], NULL)
                  FROM ff.exec_body b JOIN ff.exec_core e USING (partition_key, execution_id)
                  JOIN ff.route r USING (route_id)
                 WHERE (b.partition_key, b.execution_id) = (answer.partition_key, answer.resolved_id)) END
      FROM (SELECT g.ordinal, g.partition_key, g.execution_id, g.shape, g.resolved_id,
                   g.resolved_id = g.execution_id AND (all_new OR (g.partition_key, g.execution_id) IN (
                       SELECT * FROM unnest(new_partitions, new_ids))) IS TRUE AS created,
                   CASE WHEN g.held THEN 'waiting_children'
                        WHEN coalesce(g.delay_until_ms, now_ms + g.delay_ms, 0) > now_ms
                        THEN 'delayed' WHEN g.over THEN 'rate_limited' ELSE 'waiting' END AS public_state
              FROM unnest(given_partition_key, given_execution_id, given_shape, given_delay_ms,
                          given_delay_until_ms, given_held, resolved_ids, over) WITH ORDINALITY
                   AS g (partition_key, execution_id, shape, delay_ms, delay_until_ms, held, resolved_id, over,
                         ordinal)
           ) AS answer
     WHERE NOT answer.created OR answer.public_state <> 'waiting';
END
$$;
