-- backward_compatible
-- Who waits for others, in an order without meaning: a look at some of them, from anywhere on, is fair.
CREATE INDEX exec_core_waits_for_others ON ff.exec_core (uuid_hash(execution_id))
    WHERE eligibility_state = 'blocked_by_dependencies';

-- Flows that were never given a member.
CREATE INDEX flow_core_empty ON ff.flow_core (last_mutation_at_ms) WHERE node_count = 0;
