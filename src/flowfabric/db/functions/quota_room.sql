-- How many executions of each key may start now; NULL: as many as there are. The caller has locked the keys.
-- The slots in use are counted from the leases of the key, and the starts from its rows in quota_window that
-- are younger than the window, or of a later instant: a caller that waited for the lock of the key reads a
-- clock from before. starts is what the rate leaves, slots what the cap leaves; starts_again_at_ms is when the
-- oldest counted start leaves the window; noted_at_ms is what is noted of that. A limit that is gone limits
-- nothing.
CREATE OR REPLACE FUNCTION ff.quota_room(p_keys bigint[], p_now_ms bigint)
RETURNS TABLE (quota_key_id bigint, room integer, slots integer, starts integer, window_ms bigint,
               starts_again_at_ms bigint, noted_at_ms bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
BEGIN
    RETURN QUERY
    SELECT key.k, least(counted.slots, counted.starts), counted.slots, counted.starts, policy.window_ms,
           CASE WHEN counted.starts = 0 THEN
               (SELECT w.admitted_at_ms + policy.window_ms FROM ff.quota_window w
                 WHERE w.partition_key = ff.quota_partition(key.k, partitions) AND w.quota_key_id = key.k
                   AND w.admitted_at_ms > p_now_ms - policy.window_ms
                 ORDER BY w.admitted_at_ms LIMIT 1) END,
           q.next_at_ms
      FROM unnest(p_keys) AS key (k)
      JOIN ff.quota_key q ON q.partition_key = ff.quota_partition(key.k, partitions) AND q.quota_key_id = key.k
      LEFT JOIN ff.quota_policy policy ON policy.quota_policy_id = q.quota_policy_id
     CROSS JOIN LATERAL (
           SELECT CASE WHEN policy.active_concurrency_cap > 0 THEN
                      policy.active_concurrency_cap - (
                          SELECT count(*) FROM (SELECT FROM ff.lease l WHERE l.quota_key_id = key.k
                                                 LIMIT policy.active_concurrency_cap) AS held)::integer END AS slots,
                  CASE WHEN policy.max_requests_per_window > 0 THEN
                      policy.max_requests_per_window - (
                          SELECT count(*) FROM (SELECT FROM ff.quota_window w
                                                 WHERE w.partition_key = ff.quota_partition(key.k, partitions)
                                                   AND w.quota_key_id = key.k
                                                   AND w.admitted_at_ms > p_now_ms - policy.window_ms
                                                 LIMIT policy.max_requests_per_window) AS begun)::integer END AS starts
           ) AS counted;
END
$$;
