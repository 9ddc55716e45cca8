-- True if an unexpired claim grant reserves the execution, which waits for a worker, for another one than
-- p_worker_id. A grant of an earlier epoch is used up: see ff.unused_grant.
CREATE OR REPLACE FUNCTION ff.reserved(
    p_partition_key smallint, p_execution_id uuid, p_worker_id text
) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN EXISTS (SELECT FROM ff.claim_grant g JOIN ff.exec_core e USING (partition_key, execution_id)
                    WHERE (g.partition_key, g.execution_id) = (p_partition_key, p_execution_id)
                      AND g.kind = 'claim' AND g.expires_at_ms > ff.now_ms()
                      AND g.lease_epoch >= e.lease_epoch AND g.worker_id <> p_worker_id);
