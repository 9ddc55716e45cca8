-- Locks the named executions until the transaction ends, and returns those that exist. Nothing but renewals
-- of their leases changes them meanwhile. The caller reads them in its next statement: a claim that
-- this call waited for has given out a lease, which the calling statement does not see.
--
-- The order is that of every statement: exec_core, then ready, then lease, each by partition and id. With
-- p_pass_over, executions that another transaction has locked are left out, instead of being waited for. With
-- p_leases, which does not go with p_pass_over, the leases are locked too: for callers that look whether a
-- lease has expired, which a renewal in progress decides.
--
-- The planner settings are bound: the cached plans must look rows up by key, whatever the sizes of the
-- tables were when the plans were made. That is also why each execution is looked up in a subquery of its own
-- (which locks, or has OFFSET 0, so that the planner keeps it), and why the first column of the other indexes is
-- compared by ANY: by an equality, the whole queue can be read in the order of the index.
CREATE OR REPLACE FUNCTION ff.lock_executions(
    p_partition_keys smallint[], p_execution_ids uuid[], p_pass_over boolean DEFAULT false,
    p_leases boolean DEFAULT false
) RETURNS TABLE (partition_key smallint, execution_id uuid)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
#variable_conflict use_column
DECLARE
    partitions smallint[];
    ids uuid[];
    queues bigint[];            -- the routes of those that may be queued, and their place there
    priorities integer[];
    instants bigint[];
    queued_ids uuid[];
    queued_partitions smallint[];
    busy uuid[];
BEGIN
    -- A lock reads its row as it is then. Only an execution that is eligible can be queued.
    IF p_pass_over THEN
        WITH locked AS (
            SELECT e.*
              FROM (SELECT * FROM unnest(p_partition_keys, p_execution_ids) AS named (partition_key, execution_id)
                     ORDER BY partition_key, execution_id) AS named
             CROSS JOIN LATERAL (
                   SELECT c.partition_key, c.execution_id, c.route_id, c.priority, c.created_at_ms,
                          c.eligibility_state = 'eligible_now' AS eligible
                     FROM ff.exec_core c
                    WHERE (c.partition_key, c.execution_id) = (named.partition_key, named.execution_id)
                      FOR NO KEY UPDATE SKIP LOCKED) AS e
        )
        SELECT array_agg(partition_key), array_agg(execution_id),
               array_agg(route_id) FILTER (WHERE eligible), array_agg(priority) FILTER (WHERE eligible),
               array_agg(created_at_ms) FILTER (WHERE eligible), array_agg(execution_id) FILTER (WHERE eligible),
               array_agg(partition_key) FILTER (WHERE eligible)
          INTO partitions, ids, queues, priorities, instants, queued_ids, queued_partitions
          FROM locked;
        IF queues IS NOT NULL THEN
            WITH queued AS (
                SELECT r.ctid AS place, r.partition_key, r.execution_id
                  FROM unnest(queues, priorities, instants, queued_ids, queued_partitions)
                       AS e (route_id, priority, created_at_ms, execution_id, partition_key)
                  JOIN ff.ready r
                    ON r.route_id = ANY (ARRAY[e.route_id])
                   AND (r.priority, r.created_at_ms, r.execution_id, r.partition_key)
                     = (e.priority, e.created_at_ms, e.execution_id, e.partition_key)
            ), locked AS (
                SELECT r.execution_id
                  FROM queued JOIN ff.ready r ON r.ctid = queued.place AND r.partition_key = queued.partition_key
                   FOR UPDATE OF r SKIP LOCKED
            )
            SELECT array_agg(execution_id) INTO busy
              FROM queued WHERE execution_id NOT IN (SELECT execution_id FROM locked);
        END IF;
        RETURN QUERY
        SELECT named.partition_key, named.execution_id
          FROM unnest(partitions, ids) AS named (partition_key, execution_id)
         WHERE busy IS NULL OR named.execution_id <> ALL (busy);
    ELSE
        WITH locked AS (
            SELECT e.*
              FROM (SELECT * FROM unnest(p_partition_keys, p_execution_ids) AS named (partition_key, execution_id)
                     ORDER BY partition_key, execution_id) AS named
             CROSS JOIN LATERAL (
                   SELECT c.partition_key, c.execution_id, c.route_id, c.priority, c.created_at_ms,
                          c.eligibility_state = 'eligible_now' AS eligible
                     FROM ff.exec_core c
                    WHERE (c.partition_key, c.execution_id) = (named.partition_key, named.execution_id)
                      FOR NO KEY UPDATE) AS e
        )
        SELECT array_agg(partition_key), array_agg(execution_id),
               array_agg(route_id) FILTER (WHERE eligible), array_agg(priority) FILTER (WHERE eligible),
               array_agg(created_at_ms) FILTER (WHERE eligible), array_agg(execution_id) FILTER (WHERE eligible),
               array_agg(partition_key) FILTER (WHERE eligible)
          INTO partitions, ids, queues, priorities, instants, queued_ids, queued_partitions
          FROM locked;
        IF queues IS NOT NULL THEN
            PERFORM FROM unnest(queues, priorities, instants, queued_ids, queued_partitions)
                         AS e (route_id, priority, created_at_ms, execution_id, partition_key)
               JOIN ff.ready r
                 ON r.route_id = ANY (ARRAY[e.route_id])
                AND (r.priority, r.created_at_ms, r.execution_id, r.partition_key)
                  = (e.priority, e.created_at_ms, e.execution_id, e.partition_key)
              ORDER BY e.partition_key, e.execution_id FOR UPDATE OF r;
        END IF;
        RETURN QUERY SELECT * FROM unnest(partitions, ids);
        IF p_leases THEN
            PERFORM FROM unnest(p_partition_keys, p_execution_ids) AS named (partition_key, execution_id)
               JOIN ff.lease l
                 ON l.partition_key = ANY (ARRAY[named.partition_key]) AND l.execution_id = named.execution_id
              ORDER BY named.partition_key, named.execution_id FOR NO KEY UPDATE OF l;
        END IF;
    END IF;
END
$$;
