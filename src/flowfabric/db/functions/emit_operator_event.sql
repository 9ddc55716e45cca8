-- Writes one operator event; every operator event is written here. `p_details` has the values before and
-- after, which the caller has written before. The planner settings are bound: the cached plan must find the execution by its key also when the
-- table has grown since the plan was made.
CREATE OR REPLACE FUNCTION ff.emit_operator_event(
    p_partition_key smallint, p_execution_id uuid, p_flow_id uuid, p_event_type text, p_actor text,
    p_reason text, p_details jsonb
) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
BEGIN
    -- Readers of the outbox rely on this: a transaction has its transaction id before it has an event id.
    PERFORM pg_current_xact_id();
    INSERT INTO ff.operator_event (
           execution_id, flow_id, route_id, lease_epoch, occurred_at_ms, partition_key, event_type, actor,
           reason, details, tags)
    SELECT p_execution_id, p_flow_id, e.route_id, e.lease_epoch, ff.now_ms(), p_partition_key,
           p_event_type, p_actor, p_reason, p_details, nullif(e.tags, '{}')
      FROM (SELECT) AS one_row
      LEFT JOIN ff.execution e ON (e.partition_key, e.execution_id) = (p_partition_key, p_execution_id);
    PERFORM ff.wake('operator');
END
$$;
