-- How a flow ends, as soon as no work is left that anything needs; NULL until then, and while the flow
-- is empty. A member that has not ended is needed if no join waits for the member, or if the waiter of an
-- undecided join is needed. So work is needed exactly while a member runs for which no join waits.
CREATE OR REPLACE FUNCTION ff.flow_outcome(p_partition_key smallint, p_flow_id uuid, p_cancelled boolean)
RETURNS text
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE
               WHEN EXISTS (
                   SELECT FROM ff.exec_core e
                    WHERE e.partition_key = p_partition_key AND e.flow_id = p_flow_id
                      AND e.lifecycle_phase <> 'terminal'
                      AND NOT EXISTS (SELECT FROM ff.edge o
                                       WHERE (o.partition_key, o.upstream_eid) = (e.partition_key, e.execution_id)
                                         AND o.edge_state = 'applied'))
               THEN NULL
               WHEN p_cancelled THEN 'cancelled'
               WHEN NOT EXISTS (SELECT FROM ff.exec_core e
                                 WHERE e.partition_key = p_partition_key AND e.flow_id = p_flow_id) THEN NULL
               WHEN ff.flow_failed(p_partition_key, p_flow_id) THEN 'failed'
               ELSE 'completed'
           END
    $$;
