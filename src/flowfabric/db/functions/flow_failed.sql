-- Has a member failed, expired or been cancelled, and was that not absorbed? It is absorbed if every
-- way from the member leads to a join that was satisfied without it, or to a parent that completed.
-- Ways lead on through members that have not completed: they were skipped or cancelled. A member that
-- was left skipped fails the flow too (ff.flow_left_skipped).
CREATE OR REPLACE FUNCTION ff.flow_failed(p_partition_key smallint, p_flow_id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    WITH RECURSIVE affected AS (
        SELECT e.execution_id, e.terminal_outcome FROM ff.exec_core e
         WHERE e.partition_key = p_partition_key AND e.flow_id = p_flow_id
           AND e.terminal_outcome IN ('failed', 'cancelled', 'expired')
         UNION
        SELECT w.execution_id, w.terminal_outcome
          FROM affected a
         CROSS JOIN LATERAL (
               SELECT o.group_id FROM ff.edge o
                WHERE (o.partition_key, o.upstream_eid) = (p_partition_key, a.execution_id)
                  AND o.edge_state = 'applied' OFFSET 0) AS o
         CROSS JOIN LATERAL (
               SELECT g.waiter_eid, g.waits_as FROM ff.edge_group g
                WHERE (g.partition_key, g.group_id) = (p_partition_key, o.group_id)
                  AND g.group_state <> 'satisfied' OFFSET 0) AS g
         CROSS JOIN LATERAL (
               SELECT e.execution_id, e.terminal_outcome FROM ff.exec_core e
                WHERE (e.partition_key, e.execution_id) = (p_partition_key, g.waiter_eid)
               OFFSET 0) AS w
         WHERE a.terminal_outcome <> 'success'
           AND NOT (g.waits_as = 'children' AND w.terminal_outcome = 'success')
    )
    SELECT EXISTS (
        SELECT FROM affected a
         WHERE a.terminal_outcome = 'success'  -- it went on although its join was not satisfied
            OR NOT EXISTS (SELECT FROM ff.edge o
                            WHERE (o.partition_key, o.upstream_eid) = (p_partition_key, a.execution_id)
                              AND o.edge_state = 'applied'))
        OR ff.flow_left_skipped(p_partition_key, p_flow_id)
    $$;
