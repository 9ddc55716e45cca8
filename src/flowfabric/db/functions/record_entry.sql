-- Records one step as done in the journal of an execution, in the caller's transaction, with any driver. The
-- caller passes the lease that it holds. The lease cannot end before the transaction does, so the next
-- worker that holds the execution reads the entry. A lease that is not held raises SQLSTATE FF003. An entry that is finished
-- already stays as it is, so that the call can be repeated. Returns whether this call recorded the entry.
--
-- The planner settings are bound: the cached plans must look rows up by key, whatever the sizes of the tables
-- were when the plans were made.
CREATE OR REPLACE FUNCTION ff.record_entry(
    partition_key smallint,
    execution_id uuid,
    attempt_index integer,
    lease_epoch bigint,
    lease_id uuid,
    seq integer,
    name text,
    item text DEFAULT '',
    occurrence integer DEFAULT 0,
    started_at_ms bigint DEFAULT NULL,
    fingerprint bigint DEFAULT NULL,
    encoding text DEFAULT NULL,
    value bytea DEFAULT NULL
) RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
#variable_conflict use_column
DECLARE
    given constant text := format('{fp:%s}:%s', record_entry.partition_key, record_entry.execution_id);
    -- Control characters, invisible ones, and those that change the direction of what follows.
    names_never_have constant text := '[\u0001-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]';
    fault text;
BEGIN
    fault := CASE
        WHEN record_entry.name IS NULL OR octet_length(record_entry.name) NOT BETWEEN 1 AND 128
          OR record_entry.name ~ names_never_have
        THEN format('invalid_input: name %s must be 1 to 128 printable bytes', to_json(left(record_entry.name, 80)))
        WHEN record_entry.item IS NULL OR octet_length(record_entry.item) > 256
        THEN format('invalid_input: item %s must be at most 256 bytes', to_json(left(record_entry.item, 80)))
        WHEN record_entry.seq IS NULL OR record_entry.seq < 1
        THEN format('invalid_input: seq %s must be at least 1', coalesce(record_entry.seq::text, 'NULL'))
        WHEN record_entry.occurrence IS NULL OR record_entry.occurrence < 0
        THEN format('invalid_input: occurrence %s must not be negative',
                    coalesce(record_entry.occurrence::text, 'NULL'))
        WHEN record_entry.fingerprint NOT BETWEEN 0 AND 4294967295
        THEN format('invalid_input: fingerprint %s must be a crc32', record_entry.fingerprint)
        WHEN octet_length(record_entry.value) > 1048576
        THEN format('payload_too_large: value %s bytes is over 1048576', octet_length(record_entry.value))
        END;
    IF fault IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = fault;
    END IF;

    IF current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM FROM ff.lease l
          WHERE (l.partition_key, l.execution_id, l.attempt_index, l.lease_epoch, l.lease_id)
              = (record_entry.partition_key, record_entry.execution_id, record_entry.attempt_index,
                 record_entry.lease_epoch, record_entry.lease_id)
            AND l.lease_expires_at_ms > ff.now_ms()
            FOR KEY SHARE;
    ELSE
        -- A row that changed since the snapshot cannot be locked, and every renewal changes the lease. What ends
        -- a lease changes the execution.
        PERFORM FROM ff.exec_core e JOIN ff.lease l USING (partition_key, execution_id)
          WHERE (e.partition_key, e.execution_id, e.lease_epoch)
              = (record_entry.partition_key, record_entry.execution_id, record_entry.lease_epoch - 1)
            AND (l.attempt_index, l.lease_epoch, l.lease_id)
              = (record_entry.attempt_index, record_entry.lease_epoch, record_entry.lease_id)
            FOR SHARE OF e;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'FF003',
            MESSAGE = format('the lease of execution %s, epoch %s, is not held: %L is not recorded',
                             given, record_entry.lease_epoch, record_entry.name),
            HINT = 'Another worker may hold the execution now. Roll back, and stop working on it.';
    END IF;

    INSERT INTO ff.journal AS j (
           partition_key, seq, execution_id, attempt_index, occurrence, started_at_ms, recorded_at_ms,
           fingerprint, kind, state, name, item, encoding, value)
    VALUES (record_entry.partition_key, record_entry.seq, record_entry.execution_id, record_entry.attempt_index,
            record_entry.occurrence, coalesce(record_entry.started_at_ms, ff.now_ms()), ff.now_ms(),
            CASE WHEN record_entry.fingerprint > 2147483647 THEN record_entry.fingerprint - 4294967296
                 ELSE record_entry.fingerprint END,
            'step', 'done', record_entry.name, record_entry.item, record_entry.encoding, record_entry.value)
        ON CONFLICT (partition_key, execution_id, seq) DO UPDATE
       SET attempt_index = EXCLUDED.attempt_index, recorded_at_ms = EXCLUDED.recorded_at_ms,
           due_at_ms = NULL, state = EXCLUDED.state, encoding = EXCLUDED.encoding, value = EXCLUDED.value
     WHERE j.state = 'open';
    RETURN FOUND;
END
$$;
