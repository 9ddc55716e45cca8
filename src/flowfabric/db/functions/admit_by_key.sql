-- Locks the key of a limit for a claim by id, and counts a start if there is room for one. Otherwise returns
-- which limit and key have none, in words. The transaction that claims is rolled back if it does not claim
-- after all.
CREATE OR REPLACE FUNCTION ff.admit_by_key(p_key bigint) RETURNS text
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    AS $$
DECLARE
    now_ms constant bigint := ff.now_ms();
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    found record;
    refusal text;
BEGIN
    PERFORM ff.lock_quota_keys(ARRAY[p_key], true);
    SELECT r.* INTO found FROM ff.quota_room(ARRAY[p_key], now_ms) AS r;
    IF found.room = 0 THEN
        SELECT format('limit %s, key %L: %s', coalesce(quote_literal(p.name), p.quota_policy_id::text), q.dimension,
                      CASE WHEN found.slots = 0 THEN format('%s of %s run', p.active_concurrency_cap, p.active_concurrency_cap)
                           ELSE format('%s starts per %s s are used', p.max_requests_per_window,
                                       trim_scale(p.window_ms / 1000.0)) END) INTO refusal
          FROM ff.quota_key q JOIN ff.quota_policy p USING (quota_policy_id)
         WHERE q.partition_key = ff.quota_partition(p_key, partitions) AND q.quota_key_id = p_key;
        RETURN refusal;
    END IF;
    IF found.starts IS NOT NULL THEN
        INSERT INTO ff.quota_window (partition_key, quota_key_id, admitted_at_ms)
        VALUES (ff.quota_partition(p_key, partitions), p_key, now_ms);
    END IF;
    RETURN NULL;
END
$$;
