-- Lets executions go that the limits of these keys hold back: of each key the best, as many as may start and
-- are not claimable already. Each route of a key is counted for itself: what nobody claims, because its lane is
-- paused or no worker knows its kind, must not keep others from being claimed. Returns how many. A key whose rate is
-- used up is noted for the instant when its oldest start leaves the window. Executions that another transaction has
-- locked are passed over.
--
-- With p_wait the keys are locked in ascending order; without it, keys that are locked are left out.
CREATE OR REPLACE FUNCTION ff.unblock_quota_keys(p_keys bigint[], p_wait boolean DEFAULT true) RETURNS integer
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    at_most constant integer := 500;    -- of one key at a time; the rest is noted as due at once
    now_ms constant bigint := ff.now_ms();
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    locked bigint[];
    keys bigint[];
    most integer[];             -- how many of each key may be claimable, of each route
    again bigint[];             -- when a start leaves the window, if the rate is used up
    noted bigint[];             -- what is noted of that
    route_keys bigint[]; routes bigint[]; route_most integer[];     -- of the keys that have room
    free integer[];             -- how many more of each of them may be claimable
    passed_over bigint[];       -- keys of which more can be let go, at once
    freed_lanes text[];
    moved integer;
BEGIN
    IF NOT p_wait THEN
        PERFORM ff.note_quota_keys(p_keys);
    END IF;
    locked := ARRAY(SELECT quota_key_id FROM ff.lock_quota_keys(p_keys, p_wait));
    IF cardinality(locked) = 0 THEN
        RETURN 0;
    END IF;
    SELECT array_agg(r.quota_key_id), array_agg(least(at_most, r.room)), array_agg(r.starts_again_at_ms),
           array_agg(r.noted_at_ms)
      INTO keys, most, again, noted
      FROM ff.quota_room(ARRAY(SELECT k FROM unnest(locked) AS k   -- those that hold something back
                                WHERE EXISTS (SELECT FROM ff.exec_core c
                                               WHERE c.quota_key_id = k
                                                 AND c.exceptional_state = 'blocked_by_quota' OFFSET 0)),
                         now_ms) AS r;
    UPDATE ff.quota_key q SET next_at_ms = NULL
      FROM unnest(locked) AS key (k)
     WHERE q.partition_key = ff.quota_partition(key.k, partitions) AND q.quota_key_id = key.k
       AND q.next_at_ms IS NOT NULL AND key.k NOT IN (SELECT unnest(keys));
    IF keys IS NULL THEN
        RETURN 0;
    END IF;

    WITH RECURSIVE held_route (k, most, route_id) AS (
        SELECT key.k, key.most, (SELECT c.route_id FROM ff.exec_core c
                                  WHERE c.quota_key_id = key.k AND c.exceptional_state = 'blocked_by_quota'
                                  ORDER BY c.route_id LIMIT 1)
          FROM unnest(keys, most) AS key (k, most) WHERE key.most > 0
         UNION ALL
        SELECT held.k, held.most, (SELECT c.route_id FROM ff.exec_core c
                                    WHERE c.quota_key_id = held.k AND c.route_id > held.route_id
                                      AND c.exceptional_state = 'blocked_by_quota'
                                    ORDER BY c.route_id LIMIT 1)
          FROM held_route AS held WHERE held.route_id IS NOT NULL
    )
    SELECT array_agg(held.k), array_agg(held.route_id), array_agg(held.most), array_agg(held.most - (
               SELECT count(*) FROM (SELECT FROM ff.ready r
                                      WHERE r.quota_key_id = held.k AND r.route_id = held.route_id
                                      LIMIT held.most) AS claimable)::integer)
      INTO route_keys, routes, route_most, free
      FROM held_route AS held WHERE held.route_id IS NOT NULL;

    WITH best AS MATERIALIZED (
        SELECT e.partition_key, e.execution_id
          FROM unnest(route_keys, routes, free) AS key (k, route_id, free)
         CROSS JOIN LATERAL (
               SELECT c.partition_key, c.execution_id FROM ff.exec_core c
                WHERE c.quota_key_id = key.k AND c.route_id = key.route_id
                  AND c.exceptional_state = 'blocked_by_quota'
                ORDER BY c.priority DESC, c.created_at_ms, c.execution_id
                LIMIT key.free FOR NO KEY UPDATE SKIP LOCKED) AS e
    ), freed AS (
        UPDATE ff.exec_core e
           SET eligibility_state = 'eligible_now', blocking_reason = 'waiting_for_worker',
               blocking_detail = NULL, last_mutation_at_ms = now_ms
          FROM best
         WHERE e.partition_key = best.partition_key AND e.execution_id = best.execution_id
        RETURNING e.route_id, e.created_at_ms, e.priority, e.partition_key, e.execution_id, e.deadline_at_ms,
                  e.quota_key_id, e.budget_ids
    ), queued AS (
        INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id, deadline_at_ms,
                              quota_key_id, budget_ids, queued_by)
        SELECT freed.*, pg_current_xact_id() FROM freed
    )
    SELECT count(*), array_agg(DISTINCT route.lane_id) INTO moved, freed_lanes
      FROM freed JOIN ff.route route USING (route_id);

    IF at_most = ANY (free) OR moved < (SELECT sum(f) FROM unnest(free) AS f) THEN
        passed_over := ARRAY(
            SELECT held.k
              FROM unnest(route_keys, routes, route_most, free) AS held (k, route_id, most, free)
             WHERE EXISTS (SELECT FROM ff.exec_core c
                            WHERE c.quota_key_id = held.k AND c.route_id = held.route_id
                              AND c.exceptional_state = 'blocked_by_quota' OFFSET 0)
               AND (held.free = at_most
                    OR (SELECT count(*) FROM (SELECT FROM ff.ready r
                                               WHERE r.quota_key_id = held.k AND r.route_id = held.route_id
                                               LIMIT held.most) AS claimable) < held.most));
    END IF;
    UPDATE ff.quota_key q SET next_at_ms = due.next_at_ms
      FROM (SELECT key.k, key.noted,
                   CASE WHEN key.again IS NOT NULL THEN key.again     -- nothing of it was let go
                        WHEN key.k IN (SELECT unnest(passed_over)) THEN now_ms END AS next_at_ms
              FROM unnest(keys, again, noted) AS key (k, again, noted) OFFSET 0) AS due
     WHERE due.next_at_ms IS DISTINCT FROM due.noted
       AND q.partition_key = ff.quota_partition(due.k, partitions) AND q.quota_key_id = due.k;

    PERFORM ff.wake('lane:' || lane_id) FROM unnest(freed_lanes) AS lane_id;
    RETURN moved;
END
$$;
