-- Counts the members of a flow by state and computes the state of the flow. A failed member does not
-- fail the flow if every join that waits for the member is satisfied, or if the member is a child and
-- its parent completed. A skipped member fails the flow if all that it waited for has succeeded since,
-- unless every join that waits for the member is satisfied.
CREATE OR REPLACE FUNCTION ff.flow_status(p_partition_key smallint, p_flow_id uuid, p_cancelled boolean)
RETURNS TABLE (
    total integer, completed integer, failed integer, cancelled_members integer, expired integer,
    skipped integer, active integer, suspended integer, waiting integer, delayed integer,
    rate_limited integer, waiting_children integer, derived_state text)
    LANGUAGE sql STABLE ROWS 1
    AS $$
    WITH members AS (
        SELECT e.execution_id, e.public_state FROM ff.exec_core e
         WHERE e.partition_key = p_partition_key AND e.flow_id = p_flow_id
    ), counted AS (
        SELECT count(*)::integer AS total,
               (count(*) FILTER (WHERE public_state = 'completed'))::integer AS completed,
               (count(*) FILTER (WHERE public_state = 'failed'))::integer AS failed,
               (count(*) FILTER (WHERE public_state = 'cancelled'))::integer AS cancelled_members,
               (count(*) FILTER (WHERE public_state = 'expired'))::integer AS expired,
               (count(*) FILTER (WHERE public_state = 'skipped'))::integer AS skipped,
               (count(*) FILTER (WHERE public_state = 'active'))::integer AS active,
               (count(*) FILTER (WHERE public_state IN ('suspended', 'resumable')))::integer AS suspended,
               (count(*) FILTER (WHERE public_state = 'waiting'))::integer AS waiting,
               (count(*) FILTER (WHERE public_state = 'delayed'))::integer AS delayed,
               (count(*) FILTER (WHERE public_state = 'rate_limited'))::integer AS rate_limited,
               (count(*) FILTER (WHERE public_state = 'waiting_children'))::integer AS waiting_children
          FROM members
    )
    SELECT counted.*,
           CASE
               WHEN total = 0 THEN CASE WHEN p_cancelled THEN 'cancelled' ELSE 'open' END
               WHEN completed + failed + cancelled_members + expired + skipped = total THEN
                   CASE
                       WHEN p_cancelled THEN 'cancelled'
                       WHEN failed + cancelled_members + expired + skipped = 0 THEN 'completed'
                       WHEN failed + cancelled_members + expired > 0 AND EXISTS (
                           SELECT FROM members m
                            WHERE m.public_state IN ('failed', 'cancelled', 'expired')
                              AND (NOT EXISTS (SELECT FROM ff.edge o
                                                WHERE (o.partition_key, o.upstream_eid) = (p_partition_key, m.execution_id)
                                                  AND o.edge_state = 'applied')
                                   OR EXISTS (SELECT FROM ff.edge o JOIN ff.edge_group g USING (partition_key, group_id)
                                               WHERE (o.partition_key, o.upstream_eid) = (p_partition_key, m.execution_id)
                                                 AND o.edge_state = 'applied' AND g.group_state <> 'satisfied'
                                                 AND NOT EXISTS (SELECT FROM members p
                                                                  WHERE p.execution_id = g.waiter_eid AND g.waits_as = 'children'
                                                                    AND p.public_state = 'completed'))))
                       THEN 'failed'
                       WHEN skipped > 0 AND EXISTS (
                           SELECT FROM members m
                            WHERE m.public_state = 'skipped'
                              AND EXISTS (SELECT FROM ff.edge_group g JOIN ff.edge i USING (partition_key, group_id)
                                           WHERE (g.partition_key, g.waiter_eid) = (p_partition_key, m.execution_id)
                                             AND g.waits_as = 'member' AND i.edge_state = 'applied')
                              AND NOT EXISTS (SELECT FROM ff.edge_group g JOIN ff.edge i USING (partition_key, group_id)
                                               WHERE (g.partition_key, g.waiter_eid) = (p_partition_key, m.execution_id)
                                                 AND g.waits_as = 'member' AND i.edge_state = 'applied'
                                                 AND NOT EXISTS (SELECT FROM ff.exec_core u
                                                                  WHERE (u.partition_key, u.execution_id) = (p_partition_key, i.upstream_eid)
                                                                    AND u.terminal_outcome = 'success'))
                              AND (NOT EXISTS (SELECT FROM ff.edge o
                                                WHERE (o.partition_key, o.upstream_eid) = (p_partition_key, m.execution_id)
                                                  AND o.edge_state = 'applied')
                                   OR EXISTS (SELECT FROM ff.edge o JOIN ff.edge_group g USING (partition_key, group_id)
                                               WHERE (o.partition_key, o.upstream_eid) = (p_partition_key, m.execution_id)
                                                 AND o.edge_state = 'applied' AND g.group_state <> 'satisfied')))
                       THEN 'failed'
                       ELSE 'completed'
                   END
               WHEN active > 0 THEN 'running'
               WHEN suspended + delayed + rate_limited + waiting_children > 0 THEN 'blocked'
               ELSE 'open'
           END
      FROM counted
    $$;
