-- Inserts the rows of keys that have none, in ascending order. What is known of a key is read from an execution
-- that has it. Waits for a transaction that inserts the same key: a caller that has locked keys must not call this.
CREATE OR REPLACE FUNCTION ff.note_quota_keys(p_keys bigint[]) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off
    SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    partitions constant integer := coalesce((SELECT num_flow_partitions FROM ff.partition_config), 256);
    unknown bigint[];
BEGIN
    unknown := ARRAY(
        SELECT DISTINCT k FROM unnest(p_keys) AS k
         WHERE k IS DISTINCT FROM (     -- by primary key, also if the plan is made while the table is empty
                   SELECT q.quota_key_id FROM ff.quota_key q
                    WHERE q.partition_key = ff.quota_partition(k, partitions) AND q.quota_key_id >= k
                    ORDER BY q.quota_key_id LIMIT 1)
         ORDER BY k);
    IF cardinality(unknown) > 0 THEN
        INSERT INTO ff.quota_key (partition_key, quota_key_id, quota_policy_id, dimension)
        SELECT ff.quota_partition(key.k, partitions), key.k, body.quota_policy_id, coalesce(body.quota_dimension, '')
          FROM unnest(unknown) WITH ORDINALITY AS key (k, n)
         CROSS JOIN LATERAL (
               SELECT b.quota_policy_id, b.quota_dimension
                 FROM ((SELECT partition_key, execution_id FROM ff.ready WHERE quota_key_id = key.k LIMIT 1)
                        UNION ALL
                       (SELECT partition_key, execution_id FROM ff.exec_core
                         WHERE quota_key_id = key.k AND exceptional_state = 'blocked_by_quota' LIMIT 1)
                        UNION ALL
                       (SELECT partition_key, execution_id FROM ff.lease WHERE quota_key_id = key.k LIMIT 1)
                      ) AS e
                 JOIN ff.exec_body b USING (partition_key, execution_id)
                LIMIT 1) AS body
         ORDER BY key.n
            ON CONFLICT DO NOTHING;
    END IF;
END
$$;
