-- Writes one operator event; every operator event is written here. `facts` holds what was before and
-- after. The planner settings are bound: the cached plan must find the execution by its key also when
-- the table has grown since the plan was made.
CREATE OR REPLACE FUNCTION ff.emit_operator_event(
    of_partition smallint, of_execution uuid, of_flow uuid, what text, who text, why text, facts jsonb
) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
BEGIN
    -- Readers of the outbox rely on it: whoever takes an event's id has a transaction id by then.
    PERFORM pg_current_xact_id();
    INSERT INTO ff.operator_event (
           execution_id, flow_id, route_id, occurred_at_ms, partition_key, event_type, actor, reason,
           details, tags)
    SELECT of_execution, of_flow, e.route_id, ff.now_ms(), of_partition, what, who, why, facts,
           nullif(e.tags, '{}')
      FROM (SELECT) AS always
      LEFT JOIN ff.exec_core e ON (e.partition_key, e.execution_id) = (of_partition, of_execution);
    PERFORM ff.wake('operator');
END
$$;
