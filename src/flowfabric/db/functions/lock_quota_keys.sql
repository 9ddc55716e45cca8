-- Locks keys of limits until the transaction ends, in ascending order, and returns those that it has locked.
-- While a key is locked nobody else gives out a slot or a start of it. The caller counts in its next
-- statement, which sees what the transactions have committed that this call waited for.
--
-- With p_wait, a key without a row gets one; what is known of the key is read from an execution that has it.
-- Without p_wait, keys that another transaction has locked, or that have no row, are left out: a caller that
-- has locked keys already must not wait for others. A caller with a key locked never waits for an execution.
CREATE OR REPLACE FUNCTION ff.lock_quota_keys(p_keys bigint[], p_wait boolean)
RETURNS TABLE (quota_key_id bigint)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
BEGIN
    IF NOT p_wait THEN
        RETURN QUERY
        SELECT locked.quota_key_id
          FROM (SELECT DISTINCT k FROM unnest(p_keys) AS k ORDER BY k) AS key
         CROSS JOIN LATERAL (
               SELECT q.quota_key_id FROM ff.quota_key q
                WHERE q.partition_key = ff.quota_partition(key.k, partitions) AND q.quota_key_id = key.k
                  FOR UPDATE SKIP LOCKED) AS locked;
        RETURN;
    END IF;

    PERFORM ff.note_quota_keys(p_keys);
    RETURN QUERY
    SELECT locked.quota_key_id
      FROM (SELECT DISTINCT k FROM unnest(p_keys) AS k ORDER BY k) AS key
     CROSS JOIN LATERAL (
           SELECT q.quota_key_id FROM ff.quota_key q
            WHERE q.partition_key = ff.quota_partition(key.k, partitions) AND q.quota_key_id = key.k
              FOR UPDATE) AS locked;
END
$$;
