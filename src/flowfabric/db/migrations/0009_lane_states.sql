-- backward_compatible
-- Lanes have a state: only an active one is claimed from, a draining or disabled one takes nothing new.

-- The best claimable executions, locked for the calling statement.
--
-- A function, because its row estimate and its settings keep the claim to the index in claim order and to
-- look-ups by key, whatever the depth of the queue was when the plan was made. Among several routes it first
-- looks, without locking, how many of each the best of all are, then takes that many; what others hold, or
-- what is promised to another worker, is passed over and made up for from any route.
DROP FUNCTION ff.claimable (text[], text, text[], text[], integer);
CREATE FUNCTION ff.claimable(
    of_lanes text[], of_namespace text, of_kinds text[], offered text[], wanted integer,
    for_worker text DEFAULT ''
) RETURNS TABLE (partition_key smallint, execution_id uuid)
    LANGUAGE plpgsql VOLATILE ROWS 1
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    AS $$
#variable_conflict use_column
DECLARE
    routes bigint[];
    share record;
    taken uuid[] := '{}';
    missing bigint := 0;
    grants constant boolean := EXISTS (SELECT FROM ff.claim_grant WHERE expires_at_ms > ff.now_ms());
BEGIN
    SELECT array_agg(r.route_id) INTO routes
      FROM ff.route r
     WHERE r.lane_id = ANY (of_lanes) AND r.namespace = of_namespace
       AND r.lane_id <> ALL (ARRAY(SELECT l.lane_id FROM ff.lane_registry l
                                    WHERE l.lane_id = ANY (of_lanes) AND l.lane_state <> 'active'))
       AND (of_kinds IS NULL OR r.execution_kind = ANY (of_kinds))
       AND r.required_capabilities <@ offered;

    IF cardinality(routes) = 1 THEN
        RETURN QUERY
        SELECT e.partition_key, e.execution_id FROM ff.exec_core e
         WHERE e.route_id = routes[1] AND e.eligibility_state = 'eligible_now'
           AND (NOT grants OR NOT ff.promised(e.partition_key, e.execution_id, for_worker))
         ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
         LIMIT wanted FOR NO KEY UPDATE SKIP LOCKED;
        RETURN;
    END IF;

    FOR share IN
        SELECT chosen.route_id, count(*) AS size
          FROM (SELECT route.route_id
                  FROM unnest(routes) AS route (route_id) CROSS JOIN LATERAL (
                       SELECT e.priority, e.created_at_ms, e.execution_id FROM ff.exec_core e
                        WHERE e.route_id = route.route_id AND e.eligibility_state = 'eligible_now'
                          AND (NOT grants OR NOT ff.promised(e.partition_key, e.execution_id, for_worker))
                        ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
                        LIMIT wanted) AS best
                 ORDER BY best.priority DESC, best.created_at_ms, best.execution_id
                 LIMIT wanted) AS chosen
         GROUP BY chosen.route_id
    LOOP
        FOR partition_key, execution_id IN
            SELECT e.partition_key, e.execution_id FROM ff.exec_core e
             WHERE e.route_id = share.route_id AND e.eligibility_state = 'eligible_now'
               AND (NOT grants OR NOT ff.promised(e.partition_key, e.execution_id, for_worker))
             ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
             LIMIT share.size FOR NO KEY UPDATE SKIP LOCKED
        LOOP
            taken := taken || execution_id;
            share.size := share.size - 1;
            RETURN NEXT;
        END LOOP;
        missing := missing + share.size;
    END LOOP;

    IF missing > 0 THEN
        RETURN QUERY
        SELECT best.partition_key, best.execution_id
          FROM unnest(routes) AS route (route_id) CROSS JOIN LATERAL (
               SELECT e.partition_key, e.execution_id, e.priority, e.created_at_ms
                 FROM ff.exec_core e
                WHERE e.route_id = route.route_id AND e.eligibility_state = 'eligible_now'
                  AND (NOT grants OR NOT ff.promised(e.partition_key, e.execution_id, for_worker))
                  AND e.execution_id <> ALL (taken)
                ORDER BY e.priority DESC, e.created_at_ms, e.execution_id
                LIMIT missing FOR NO KEY UPDATE SKIP LOCKED) AS best
         ORDER BY best.priority DESC, best.created_at_ms, best.execution_id
         LIMIT missing;
    END IF;
END
$$;

-- As before. What is new on a lane that takes nothing new is refused as a whole call; a member of a flow
-- may be created held, which is blocked by the dependencies that follow in the same transaction.
DROP FUNCTION ff.create_execution (
    text[], text[], text[], text[], text[], text[], jsonb[], smallint[], uuid[], integer[], bytea[], integer[],
    bigint[], bigint[], bigint[], bigint[], text[], bigint[], jsonb[], bigint);
CREATE FUNCTION ff.create_execution(
    shape_namespace text[], shape_lane_id text[], shape_execution_kind text[],
    shape_required_capabilities text[], shape_payload_encoding text[],
    shape_creator_identity text[], shape_policy jsonb[],
    given_partition_key smallint[], given_execution_id uuid[], given_shape integer[],
    given_payload bytea[], given_priority integer[],
    given_delay_ms bigint[], given_delay_until_ms bigint[],
    given_deadline_ms bigint[], given_deadline_at_ms bigint[],
    given_idempotency_key text[], given_dedup_window_ms bigint[], given_tags jsonb[],
    given_now_ms bigint DEFAULT NULL, given_flow_id uuid[] DEFAULT NULL,
    given_held boolean[] DEFAULT NULL, given_member_name text[] DEFAULT NULL
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
    closed constant text[] := ARRAY(SELECT l.lane_id FROM ff.lane_registry l
                                     WHERE l.lane_id = ANY (shape_lane_id)
                                       AND l.lane_state IN ('draining', 'disabled'));
    refused text;
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
           eligibility_state, blocking_reason, delay_until_ms, not_before_ms, deadline_at_ms, tags, flow_id)
    SELECT g.partition_key, g.execution_id, routes[g.shape], called_at_ms, called_at_ms,
           greatest(0, least(9000, coalesce(g.priority, 0))),
           CASE WHEN g.held THEN 'blocked_by_dependencies'
                WHEN until.ms > called_at_ms THEN 'not_eligible_until_time' ELSE 'eligible_now' END,
           CASE WHEN g.held THEN 'waiting_for_children'
                WHEN until.ms > called_at_ms THEN 'waiting_for_delay' ELSE 'waiting_for_worker' END,
           CASE WHEN until.ms > called_at_ms AND g.held IS NOT TRUE THEN until.ms END,
           CASE WHEN until.ms > called_at_ms AND g.held THEN until.ms END,
           coalesce(g.deadline_at_ms, called_at_ms + g.deadline_ms, called_at_ms
               + (shape_policy[g.shape] #>> '{timeout_policy,execution_deadline_ms}')::bigint),
           coalesce(g.tags, '{}'), g.flow_id
      FROM unnest(given_partition_key, given_execution_id, given_shape, given_priority, given_delay_ms,
                  given_delay_until_ms, given_deadline_ms, given_deadline_at_ms, given_tags, given_flow_id,
                  given_held, stands_for)
           AS g (partition_key, execution_id, shape, priority, delay_ms, delay_until_ms, deadline_ms,
                 deadline_at_ms, tags, flow_id, held, stands_for),
           LATERAL (SELECT coalesce(g.delay_until_ms, called_at_ms + g.delay_ms)) AS until (ms)
     WHERE g.stands_for = g.execution_id
        ON CONFLICT DO NOTHING;

    -- An execution whose body this call stores is one that this call created.
    WITH stored AS (
        INSERT INTO ff.exec_body (
               partition_key, execution_id, created_at_ms, payload, payload_encoding,
               creator_identity, idempotency_key, policy, member_name)
        SELECT g.partition_key, g.execution_id, called_at_ms, g.payload,
               shape_payload_encoding[g.shape], shape_creator_identity[g.shape], g.idempotency_key,
               shape_policy[g.shape], g.member_name
          FROM unnest(given_partition_key, given_execution_id, given_shape, given_payload,
                      given_idempotency_key, given_member_name, stands_for)
               AS g (partition_key, execution_id, shape, payload, idempotency_key, member_name, stands_for)
         WHERE g.stands_for = g.execution_id
            ON CONFLICT DO NOTHING
     RETURNING partition_key, execution_id
    )
    SELECT array_agg(partition_key), array_agg(execution_id) INTO new_partitions, new_ids FROM stored;
    all_new := cardinality(new_ids) = cardinality(given_execution_id);
    at_once := all_new AND given_delay_ms IS NULL AND given_delay_until_ms IS NULL AND given_held IS NULL;

    -- What was created before is a duplicate wherever its lane stands; only what is new is refused.
    IF cardinality(closed) > 0 THEN
        SELECT format('lane %L is %s', l.lane_id, l.lane_state) INTO refused
          FROM unnest(given_partition_key, given_execution_id, given_shape)
               AS g (partition_key, execution_id, shape)
          JOIN ff.lane_registry l ON l.lane_id = shape_lane_id[g.shape]
         WHERE l.lane_id = ANY (closed)
           AND (g.partition_key, g.execution_id) IN (SELECT * FROM unnest(new_partitions, new_ids))
         LIMIT 1;
        IF refused IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'FF001', MESSAGE = refused;
        END IF;
    END IF;

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
                               given_delay_until_ms, given_held)
                        AS g (partition_key, execution_id, shape, delay_ms, delay_until_ms, held)
                  WHERE g.held IS NOT TRUE AND coalesce(g.delay_until_ms, called_at_ms + g.delay_ms, 0) <= called_at_ms
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
                   CASE WHEN g.held THEN 'waiting_children'
                        WHEN coalesce(g.delay_until_ms, called_at_ms + g.delay_ms, 0) > called_at_ms
                        THEN 'delayed' ELSE 'waiting' END AS public_state
              FROM unnest(given_partition_key, given_execution_id, given_delay_ms,
                          given_delay_until_ms, given_held, stands_for) WITH ORDINALITY
                   AS g (partition_key, execution_id, delay_ms, delay_until_ms, held, stands_for, ordinal)
           ) AS told
     WHERE NOT told.created OR told.public_state <> 'waiting';
END
$$;
