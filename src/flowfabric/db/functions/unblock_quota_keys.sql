-- Lets executions go that the limits of these keys hold back: of each key the best, as many as may start and
-- are not claimable already. Returns how many. A key whose rate is used up is noted for the instant when its
-- oldest start leaves the window. Executions that another transaction has locked are passed over.
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
    most integer[];             -- how many of each key may be claimable
    free integer[];             -- how many more of each key may be claimable
    again bigint[];             -- when a start leaves the window, if the rate is used up
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
    SELECT array_agg(r.quota_key_id), array_agg(least(at_most, r.room)), array_agg(least(at_most, r.room) - (
               SELECT count(*) FROM (SELECT FROM ff.ready e WHERE e.quota_key_id = r.quota_key_id
                                      LIMIT greatest(0, least(at_most, r.room))) AS claimable)::integer),
           array_agg(r.starts_again_at_ms)
      INTO keys, most, free, again
      FROM ff.quota_room(locked, now_ms) AS r;

    WITH best AS MATERIALIZED (
        SELECT e.partition_key, e.execution_id
          FROM unnest(keys, free) AS key (k, free)
         CROSS JOIN LATERAL (
               SELECT c.partition_key, c.execution_id FROM ff.exec_core c
                WHERE c.quota_key_id = key.k AND c.exceptional_state = 'blocked_by_quota'
                ORDER BY c.priority DESC, c.created_at_ms, c.execution_id
                LIMIT greatest(0, key.free) FOR NO KEY UPDATE SKIP LOCKED) AS e
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
                              quota_key_id, budget_ids)
        SELECT * FROM freed
    )
    SELECT count(*), array_agg(DISTINCT route.lane_id) INTO moved, freed_lanes
      FROM freed JOIN ff.route route USING (route_id);

    UPDATE ff.quota_key q SET next_at_ms = due.next_at_ms
      FROM (SELECT key.k, CASE WHEN NOT EXISTS (SELECT FROM ff.exec_core c
                                                 WHERE c.quota_key_id = key.k
                                                   AND c.exceptional_state = 'blocked_by_quota') THEN NULL
                               WHEN key.again IS NOT NULL THEN key.again
                               WHEN key.free = at_most
                                 OR (SELECT count(*) FROM (SELECT FROM ff.ready e WHERE e.quota_key_id = key.k
                                                            LIMIT key.most) AS claimable) < key.most
                               THEN now_ms END AS next_at_ms    -- at once; some were passed over
              FROM unnest(keys, most, free, again) AS key (k, most, free, again)) AS due
     WHERE q.partition_key = ff.quota_partition(due.k, partitions) AND q.quota_key_id = due.k
       AND q.next_at_ms IS DISTINCT FROM due.next_at_ms;

    PERFORM ff.wake('lane:' || lane_id) FROM unnest(freed_lanes) AS lane_id;
    RETURN moved;
END
$$;
