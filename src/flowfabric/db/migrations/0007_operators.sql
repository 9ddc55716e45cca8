-- backward_compatible
-- What operators do to executions and lanes, who did it, and how finished work is forgotten.

ALTER TABLE ff.lane_registry
    ADD COLUMN lane_state          text NOT NULL DEFAULT 'active',
    ADD COLUMN state_changed_at_ms bigint,
    ADD COLUMN state_changed_by    text,
    ADD COLUMN state_reason        text,
    ADD COLUMN retention_ms        bigint,
    ADD CONSTRAINT lane_registry_lane_state CHECK (lane_state IN ('active', 'paused', 'draining', 'disabled')),
    ADD CONSTRAINT lane_registry_retention CHECK (retention_ms >= 0);

-- The outbox and the audit of operator actions. An action on a lane or a flow names no execution.
CREATE TABLE ff.operator_event (
    event_id       bigint GENERATED ALWAYS AS IDENTITY,
    execution_id   uuid,
    flow_id        uuid,
    route_id       bigint,
    occurred_at_ms bigint NOT NULL,
    partition_key  smallint NOT NULL,
    event_type     text NOT NULL,
    actor          text NOT NULL,
    reason         text,
    details        jsonb NOT NULL,
    tags           jsonb,
    PRIMARY KEY (event_id, partition_key),
    CONSTRAINT operator_event_event_type CHECK (
        event_type IN ('cancelled', 'lease_revoked', 'priority_changed', 'replayed', 'blocked', 'unblocked',
            'flow_cancel_requested', 'lane_state_changed', 'lane_retention_changed', 'retention_trimmed',
            'key_rotated'))
);
CREATE INDEX operator_event_execution ON ff.operator_event (execution_id) WHERE execution_id IS NOT NULL;
CREATE INDEX operator_event_age ON ff.operator_event (occurred_at_ms) WHERE execution_id IS NULL;

-- The one way an operator event is written; `details` holds what was before and after.
CREATE FUNCTION ff.emit_operator_event(
    of_partition smallint, of_execution uuid, of_flow uuid, what text, who text, why text, facts jsonb
) RETURNS void
    LANGUAGE plpgsql VOLATILE
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

-- History and retention find events by execution. Ids are made in the order of time, so that this
-- index grows at its end.
CREATE INDEX completion_event_execution ON ff.completion_event (execution_id);
CREATE INDEX lease_event_execution ON ff.lease_event (execution_id);
-- What is finished, oldest first within a route.
CREATE INDEX exec_core_finished ON ff.exec_core (route_id, terminal_at_ms) WHERE lifecycle_phase = 'terminal';
-- What neither waits for a worker nor for an instant; almost nothing does.
CREATE INDEX exec_core_held_back ON ff.exec_core (route_id)
    WHERE lifecycle_phase = 'suspended'
       OR eligibility_state IN ('blocked_by_dependencies', 'blocked_by_budget', 'blocked_by_quota',
              'blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator');

ALTER TABLE ff.exec_core ADD COLUMN last_capability_mismatch_at_ms bigint;

-- The life of worker processes.
CREATE TABLE ff.worker_registry_event (
    partition_key      smallint NOT NULL,
    namespace          text NOT NULL,
    worker_instance_id text NOT NULL,
    event_at_ms        bigint NOT NULL,
    event_kind         text NOT NULL,
    worker_id          text NOT NULL,
    reason             text,
    PRIMARY KEY (partition_key, namespace, worker_instance_id, event_at_ms, event_kind),
    CONSTRAINT worker_registry_event_event_kind CHECK (
        event_kind IN ('registered', 'heartbeat', 'marked_dead', 'ttl_swept'))
);
CREATE INDEX worker_registry_event_age ON ff.worker_registry_event (event_at_ms);
