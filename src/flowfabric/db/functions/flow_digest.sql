-- The digest of the graph that a flow was started with; NULL if the flow does not exist or has no
-- idempotency key. VOLATILE: the statement that calls this may have waited for the transaction that created
-- the flow, and the snapshot of the statement does not have the flow.
CREATE OR REPLACE FUNCTION ff.flow_digest(p_partition_key smallint, p_flow_id uuid) RETURNS bytea
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    AS $$
BEGIN
    RETURN (SELECT f.graph_digest FROM ff.flow_core f
             WHERE (f.partition_key, f.flow_id) = (p_partition_key, p_flow_id));
END
$$;
