-- As ff.claimable, where executions of limits are queued: of each key no more are returned than may start.
--
-- The best executions are locked as in ff.claimable, with SKIP LOCKED. Then the keys that they have are
-- locked in ascending order, and what each key leaves is counted under its lock: the leases of this claim are
-- visible to the next one that gets the lock. Of a key the best are taken, among those that were found and
-- those that are held back, so that a newcomer does not pass an older one. If an older one is held back, it is
-- queued, and found by the next claim. If an older one is queued that was not found, because another claim has
-- locked it and waits for the key, or was queued meanwhile, it keeps its room. Executions of routes that the caller
-- does not claim are not looked at: perhaps nobody does, and they would keep their room for ever.
--
-- If executions are missing then, those that were found of a key that has nothing left, and some more, leave the
-- queue, so that they do not hide others; those of a key that has something left stay: nobody would let them go.
-- The next ones are looked at, without the keys of the rounds before, because what was taken of them is not leased
-- yet. A later round does not wait for keys. A claim that has got many ends instead, unless it has passed over many
-- more: what stays in the queue is likely to be free at the next claim, and costs nothing until then. Such a claim
-- is followed by another one of the same worker. A claim that gets nothing has taken from the queue all that it found.
--
-- A row without a place says how many were held back by a rate and by a cap, and whether a claim after this
-- one finds more. With p_takes false nothing is counted as started: the caller only reserves the executions.
-- p_seen is what the statement sees that calls this function and leases what it returns.
CREATE OR REPLACE FUNCTION ff.claimable_limited(
    p_routes bigint[], p_limit integer, p_worker_id text, p_any_grant boolean, p_takes boolean, p_seen pg_snapshot
) RETURNS TABLE (place tid, held_back integer[])
    LANGUAGE plpgsql VOLATILE ROWS 1
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    rounds constant integer := 4;
    further constant integer := 500;    -- how many more leave the queue in one round
    enough constant integer := 100;     -- a claim that has got so many may leave in the queue what it cannot take
    now_ms constant bigint := ff.now_ms();
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    missing integer := p_limit;
    wanted integer;
    seen_keys bigint[] := '{}';         -- of earlier rounds
    seen_ids uuid[] := '{}';
    places tid[]; ids uuid[];           -- what a round finds
    free_places tid[];                  -- found, locked, and without a key
    found_places tid[]; found_ids uuid[]; found_keys bigint[]; found_priorities integer[]; found_instants bigint[];
    keys bigint[]; rooms integer[]; slots integer[]; starts integer[];  -- those that are locked
    taken_places tid[]; taken_ids uuid[]; taken_keys bigint[];
    older_partitions smallint[]; older_ids uuid[];
    full_keys bigint[];                 -- those that have nothing left
    got integer := 0;                   -- in all rounds
    passed_over integer := 0;           -- found and not taken, in all rounds
    goes_on boolean;
    by_rate integer := 0;
    by_cap integer := 0;
    more_rate integer;
    more_cap integer;
    passes boolean;                     -- one that was not found is better
    found_count integer;
    look_again boolean := false;
BEGIN
    FOR round IN 1 .. rounds LOOP
        wanted := missing;
        SELECT best.places, best.ids INTO places, ids
          FROM ff.best_queued(p_routes, wanted, now_ms, p_worker_id, p_any_grant, seen_keys, seen_ids) AS best;
        EXIT WHEN places IS NULL;

        SELECT array_agg(l.place) FILTER (WHERE l.quota_key_id IS NULL),
               array_agg(l.place) FILTER (WHERE l.quota_key_id IS NOT NULL),
               array_agg(l.execution_id) FILTER (WHERE l.quota_key_id IS NOT NULL),
               array_agg(l.quota_key_id) FILTER (WHERE l.quota_key_id IS NOT NULL),
               array_agg(l.priority) FILTER (WHERE l.quota_key_id IS NOT NULL),
               array_agg(l.created_at_ms) FILTER (WHERE l.quota_key_id IS NOT NULL)
          INTO free_places, found_places, found_ids, found_keys, found_priorities, found_instants
          FROM (SELECT e.ctid AS place, e.execution_id, e.quota_key_id, e.priority, e.created_at_ms
                  FROM unnest(places, ids) AS best (place, execution_id)
                  JOIN ff.ready e ON e.ctid = best.place AND e.execution_id = best.execution_id
                 WHERE NOT p_any_grant OR NOT ff.reserved(e.partition_key, e.execution_id, p_worker_id)
                   FOR UPDATE OF e SKIP LOCKED) AS l;
        missing := missing - coalesce(cardinality(free_places), 0);
        got := got + coalesce(cardinality(free_places), 0);
        RETURN QUERY SELECT unnest(free_places), NULL::integer[];

        IF found_keys IS NOT NULL THEN
            keys := ARRAY(SELECT quota_key_id FROM ff.lock_quota_keys(found_keys, round = 1));
            look_again := look_again OR EXISTS (SELECT unnest(found_keys) EXCEPT SELECT unnest(keys));
            SELECT array_agg(r.quota_key_id), array_agg(r.room), array_agg(r.slots), array_agg(r.starts)
              INTO keys, rooms, slots, starts
              FROM ff.quota_room(keys, now_ms) AS r;

            -- What was queued after the calling statement began, it cannot lease, and it must not count as a start.
            -- A number that no transaction has had yet is one of the server from which the database was restored.
            IF p_takes AND p_seen IS NOT NULL AND array_remove(starts, NULL) <> '{}' THEN
                found_count := cardinality(found_places);
                SELECT coalesce(array_agg(r.ctid), '{}'), coalesce(array_agg(r.execution_id), '{}'),
                       coalesce(array_agg(r.quota_key_id), '{}'), coalesce(array_agg(r.priority), '{}'),
                       coalesce(array_agg(r.created_at_ms), '{}')
                  INTO found_places, found_ids, found_keys, found_priorities, found_instants
                  FROM unnest(found_places) AS found (place) JOIN ff.ready r ON r.ctid = found.place
                 WHERE pg_visible_in_snapshot(r.queued_by, p_seen)
                    OR r.queued_by >= pg_snapshot_xmax(pg_current_snapshot());
                look_again := look_again OR cardinality(found_places) < found_count;
            END IF;

            -- Of each key the best among those that were found and those that are held back. Rows of keys and of
            -- executions are brought together by windows: a join of two arrays would compare all with all.
            WITH RECURSIVE found AS MATERIALIZED (
                SELECT f.*, bool_or(f.is_key) OVER (PARTITION BY f.k) AS locked,
                       least(max(f.room) OVER (PARTITION BY f.k),
                             count(*) FILTER (WHERE NOT f.is_key) OVER (PARTITION BY f.k))::integer AS n
                  FROM (SELECT false AS is_key, f.place, f.execution_id, f.k, f.priority, f.created_at_ms,
                               NULL::integer AS room
                          FROM unnest(found_places, found_ids, found_keys, found_priorities, found_instants)
                               AS f (place, execution_id, k, priority, created_at_ms)
                         UNION ALL
                        SELECT true, NULL, NULL, key.k, NULL, NULL, key.room
                          FROM unnest(keys, rooms) AS key (k, room)) AS f
            ), held_route (k, n, route_id) AS (     -- of each key the routes of those that are held back
                SELECT found.k, found.n, (SELECT c.route_id FROM ff.exec_core c
                                           WHERE c.quota_key_id = found.k
                                             AND c.exceptional_state = 'blocked_by_quota'
                                           ORDER BY c.route_id LIMIT 1)
                  FROM found WHERE found.is_key AND found.n > 0
                 UNION ALL
                SELECT held.k, held.n, (SELECT c.route_id FROM ff.exec_core c
                                         WHERE c.quota_key_id = held.k AND c.route_id > held.route_id
                                           AND c.exceptional_state = 'blocked_by_quota'
                                         ORDER BY c.route_id LIMIT 1)
                  FROM held_route AS held WHERE held.route_id IS NOT NULL
            ), queued_route (k, n, route_id) AS (   -- and of those that are queued
                SELECT found.k, found.n, (SELECT r.route_id FROM ff.ready r
                                           WHERE r.quota_key_id = found.k ORDER BY r.route_id LIMIT 1)
                  FROM found WHERE found.is_key AND found.n > 0
                 UNION ALL
                SELECT queued.k, queued.n, (SELECT r.route_id FROM ff.ready r
                                             WHERE r.quota_key_id = queued.k AND r.route_id > queued.route_id
                                             ORDER BY r.route_id LIMIT 1)
                  FROM queued_route AS queued WHERE queued.route_id IS NOT NULL
            ), best AS (
                SELECT b.*, row_number() OVER (PARTITION BY b.k
                                               ORDER BY b.priority DESC, b.created_at_ms, b.execution_id) AS rank
                  FROM (SELECT found.place, NULL::smallint AS partition_key, found.execution_id, found.k,
                               found.priority, found.created_at_ms, found.n
                          FROM found WHERE found.locked AND NOT found.is_key
                         UNION ALL
                        SELECT NULL, older.partition_key, older.execution_id, held.k, older.priority,
                               older.created_at_ms, held.n
                          FROM held_route AS held CROSS JOIN LATERAL (
                               SELECT c.partition_key, c.execution_id, c.priority, c.created_at_ms
                                 FROM ff.exec_core c
                                WHERE c.quota_key_id = held.k AND c.route_id = held.route_id
                                  AND c.exceptional_state = 'blocked_by_quota'
                                ORDER BY c.priority DESC, c.created_at_ms, c.execution_id
                                LIMIT held.n) AS older
                         WHERE held.route_id = ANY (p_routes)
                         UNION ALL
                        SELECT NULL, NULL, other.execution_id, queued.k, other.priority, other.created_at_ms,
                               queued.n
                          FROM queued_route AS queued CROSS JOIN LATERAL (
                               SELECT r.execution_id, r.priority, r.created_at_ms
                                 FROM ff.ready r
                                WHERE r.quota_key_id = queued.k AND r.route_id = queued.route_id
                                  AND (r.deadline_at_ms IS NULL OR r.deadline_at_ms > now_ms)
                                  AND r.execution_id NOT IN (SELECT unnest(found_ids))    -- hashed
                                  AND (NOT p_any_grant
                                       OR NOT ff.reserved(r.partition_key, r.execution_id, p_worker_id))
                                ORDER BY r.priority DESC, r.created_at_ms, r.execution_id
                                LIMIT queued.n) AS other
                         WHERE queued.route_id = ANY (p_routes)) AS b
            )
            SELECT array_agg(best.place) FILTER (WHERE best.place IS NOT NULL),
                   array_agg(best.execution_id) FILTER (WHERE best.place IS NOT NULL),
                   array_agg(best.k) FILTER (WHERE best.place IS NOT NULL),
                   array_agg(best.partition_key) FILTER (WHERE best.partition_key IS NOT NULL),
                   array_agg(best.execution_id) FILTER (WHERE best.partition_key IS NOT NULL),
                   bool_or(best.place IS NULL AND best.partition_key IS NULL)
              INTO taken_places, taken_ids, taken_keys, older_partitions, older_ids, passes
              FROM best WHERE best.rank <= best.n;
            missing := missing - coalesce(cardinality(taken_places), 0);
            got := got + coalesce(cardinality(taken_places), 0);
            passed_over := passed_over + cardinality(found_places) - coalesce(cardinality(taken_places), 0);
            goes_on := missing > 0 AND (got < enough OR passed_over > 4 * got);
            look_again := look_again OR coalesce(passes, false);
            RETURN QUERY SELECT unnest(taken_places), NULL::integer[];

            IF p_takes THEN
                INSERT INTO ff.quota_window (partition_key, quota_key_id, admitted_at_ms)
                SELECT ff.quota_partition(taken.k, partitions), taken.k, now_ms
                  FROM unnest(taken_keys) AS taken (k)
                 WHERE taken.k NOT IN (SELECT key.k FROM unnest(keys, starts) AS key (k, starts)
                                        WHERE key.starts IS NULL);
            END IF;

            -- Keys that have nothing left. A used up rate has an instant at which the next may start.
            SELECT array_agg(key.k) INTO full_keys
              FROM (SELECT key.k
                      FROM (SELECT key.k, key.room, 0 AS taken FROM unnest(keys, rooms) AS key (k, room)
                             UNION ALL
                            SELECT taken.k, NULL, 1 FROM unnest(taken_keys) AS taken (k)) AS key
                     GROUP BY key.k HAVING max(key.room) <= sum(key.taken)) AS key;
            IF full_keys IS NOT NULL AND p_takes AND array_remove(starts, NULL) <> '{}' THEN
                UPDATE ff.quota_key q SET next_at_ms = rate.starts_again_at_ms
                  FROM ff.quota_room(full_keys, now_ms) AS rate
                 WHERE rate.starts = 0 AND rate.starts_again_at_ms IS NOT NULL
                   AND q.partition_key = ff.quota_partition(rate.quota_key_id, partitions)
                   AND q.quota_key_id = rate.quota_key_id
                   AND q.next_at_ms IS DISTINCT FROM rate.starts_again_at_ms;
            END IF;

            IF full_keys IS NOT NULL AND p_takes AND goes_on THEN
                WITH over AS MATERIALIZED (
                    SELECT r.ctid AS place, r.partition_key, r.execution_id, r.quota_key_id
                      FROM unnest(full_keys) AS key (k)
                      JOIN ff.ready r ON r.quota_key_id = key.k AND r.route_id = ANY (p_routes)
                     WHERE r.execution_id NOT IN (SELECT unnest(taken_ids))   -- hashed
                     LIMIT cardinality(found_ids) + further FOR UPDATE OF r SKIP LOCKED
                ), free AS MATERIALIZED (
                    SELECT over.place, over.quota_key_id, e.partition_key, e.execution_id
                      FROM over CROSS JOIN LATERAL (
                           SELECT c.partition_key, c.execution_id FROM ff.exec_core c
                            WHERE c.partition_key = over.partition_key AND c.execution_id = over.execution_id
                              FOR NO KEY UPDATE SKIP LOCKED) AS e
                ), blocked AS (
                    UPDATE ff.exec_core e
                       SET eligibility_state = 'blocked_by_quota', blocking_reason = 'waiting_for_quota',
                           last_mutation_at_ms = now_ms
                      FROM free
                     WHERE e.partition_key = free.partition_key AND e.execution_id = free.execution_id
                ), dequeued AS (
                    DELETE FROM ff.ready r USING free WHERE r.ctid = free.place
                )
                SELECT count(*) FILTER (WHERE free.by_rate), count(*) FILTER (WHERE NOT free.by_rate)
                  INTO more_rate, more_cap
                  FROM (SELECT free.quota_key_id NOT IN (
                                   SELECT key.k FROM unnest(keys, slots, starts) AS key (k, slots, starts)
                                    WHERE NOT coalesce(key.starts <= key.slots, key.slots IS NULL)) AS by_rate
                          FROM free) AS free;
                by_rate := by_rate + more_rate;
                by_cap := by_cap + more_cap;
            END IF;

            IF older_ids IS NOT NULL AND p_takes THEN
                WITH free AS MATERIALIZED (
                    SELECT e.partition_key, e.execution_id
                      FROM unnest(older_partitions, older_ids) AS older (partition_key, execution_id)
                     CROSS JOIN LATERAL (
                           SELECT c.partition_key, c.execution_id FROM ff.exec_core c
                            WHERE c.partition_key = older.partition_key AND c.execution_id = older.execution_id
                              AND c.exceptional_state = 'blocked_by_quota'
                              FOR NO KEY UPDATE SKIP LOCKED) AS e
                ), freed AS (
                    UPDATE ff.exec_core e
                       SET eligibility_state = 'eligible_now', blocking_reason = 'waiting_for_worker',
                           blocking_detail = NULL, last_mutation_at_ms = now_ms
                      FROM free
                     WHERE e.partition_key = free.partition_key AND e.execution_id = free.execution_id
                    RETURNING e.route_id, e.created_at_ms, e.priority, e.partition_key, e.execution_id,
                              e.deadline_at_ms, e.quota_key_id, e.budget_ids
                ), queued AS (
                    INSERT INTO ff.ready (route_id, created_at_ms, priority, partition_key, execution_id,
                                          deadline_at_ms, quota_key_id, budget_ids, queued_by)
                    SELECT freed.*, pg_current_xact_id() FROM freed
                ), lanes AS (
                    SELECT DISTINCT route.lane_id FROM freed JOIN ff.route route USING (route_id)
                )
                SELECT look_again OR count(ff.wake('lane:' || lanes.lane_id)) > 0 OR count(*) > 0
                  INTO look_again FROM lanes;
            END IF;
            seen_keys := seen_keys || found_keys;
            look_again := look_again OR missing > 0 AND NOT goes_on;
            EXIT WHEN NOT goes_on;
        END IF;

        EXIT WHEN missing <= 0;
        EXIT WHEN cardinality(places) < wanted;
        seen_ids := seen_ids || ids;
        look_again := look_again OR round = rounds;
    END LOOP;
    IF by_rate > 0 OR by_cap > 0 OR look_again THEN
        RETURN QUERY SELECT NULL::tid, ARRAY[by_rate, by_cap, look_again::integer];
    END IF;
END
$$;
