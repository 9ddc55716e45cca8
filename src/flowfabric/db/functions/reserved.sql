-- Is the execution reserved, by an unexpired claim grant, for another worker than this one?
CREATE OR REPLACE FUNCTION ff.reserved(of_partition smallint, of_execution uuid, to_other_than text) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN EXISTS (SELECT FROM ff.claim_grant g
                    WHERE (g.partition_key, g.execution_id) = (of_partition, of_execution)
                      AND g.kind = 'claim' AND g.expires_at_ms > ff.now_ms()
                      AND g.worker_id <> to_other_than);
