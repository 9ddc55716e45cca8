-- Is a member skipped although all that it waited for has succeeded since? It does not count if every
-- join that waits for the member is satisfied without it.
CREATE OR REPLACE FUNCTION ff.flow_left_skipped(p_partition_key smallint, p_flow_id uuid) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT EXISTS (
        SELECT FROM ff.exec_core m
         WHERE m.partition_key = p_partition_key AND m.flow_id = p_flow_id AND m.terminal_outcome = 'skipped'
           AND (SELECT count(*) > 0 AND bool_and(u.terminal_outcome IS NOT DISTINCT FROM 'success')
                  FROM ff.edge_group g
                  JOIN ff.edge i ON (i.partition_key, i.group_id) = (g.partition_key, g.group_id)
                  LEFT JOIN ff.exec_core u ON (u.partition_key, u.execution_id) = (i.partition_key, i.upstream_eid)
                 WHERE (g.partition_key, g.waiter_eid) = (p_partition_key, m.execution_id)
                   AND g.waits_as = 'member' AND i.edge_state = 'applied')
           AND (SELECT count(*) = 0 OR bool_or(g.group_state <> 'satisfied')
                  FROM ff.edge o
                  JOIN ff.edge_group g ON (g.partition_key, g.group_id) = (o.partition_key, o.group_id)
                 WHERE (o.partition_key, o.upstream_eid) = (p_partition_key, m.execution_id)
                   AND o.edge_state = 'applied'))
    $$;
