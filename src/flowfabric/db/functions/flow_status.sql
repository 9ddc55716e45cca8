-- Counts the members of a flow by state and computes the state of the flow. A failure that was absorbed
-- does not fail the flow (ff.flow_failed).
CREATE OR REPLACE FUNCTION ff.flow_status(p_partition_key smallint, p_flow_id uuid, p_cancelled boolean)
RETURNS TABLE (
    total integer, completed integer, failed integer, cancelled_members integer, expired integer,
    skipped integer, active integer, suspended integer, waiting integer, delayed integer,
    rate_limited integer, waiting_children integer, derived_state text)
    LANGUAGE sql STABLE ROWS 1
    AS $$
    WITH members AS (
        SELECT e.execution_id, e.public_state FROM ff.execution e
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
                       WHEN ff.flow_failed(p_partition_key, p_flow_id) THEN 'failed'
                       ELSE 'completed'
                   END
               WHEN active > 0 THEN 'running'
               WHEN suspended + delayed + rate_limited + waiting_children > 0 THEN 'blocked'
               ELSE 'open'
           END
      FROM counted
    $$;
