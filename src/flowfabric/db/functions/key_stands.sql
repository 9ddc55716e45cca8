-- Does a unique key still belong to its execution? With scope started until its first claim, with scope ended
-- until its end. A key whose execution does not exist belongs to nobody.
CREATE OR REPLACE FUNCTION ff.key_stands(p_partition_key smallint, p_execution_id uuid, p_scope text)
RETURNS boolean
    LANGUAGE sql STABLE
    RETURN EXISTS (SELECT FROM ff.exec_core e
                    WHERE (e.partition_key, e.execution_id) = (p_partition_key, p_execution_id)
                      AND e.lifecycle_phase <> 'terminal'
                      AND (p_scope = 'ended'
                           OR e.started_at_ms IS NULL
                              AND NOT EXISTS (SELECT FROM ff.lease l
                                               WHERE (l.partition_key, l.execution_id)
                                                   = (p_partition_key, p_execution_id))));
