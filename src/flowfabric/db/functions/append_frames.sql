-- Appends frames to the streams of running attempts: many frames of many streams. A caller is a lease and an
-- append_id; a frame has the number of its caller, from 1. Answers one row for each caller that holds its
-- lease; nothing is written for the others. A caller whose append_id was that of the last append of its stream
-- repeats a call whose answer was lost: it gets the same answer, and nothing is written.
--
-- Each command sees what was committed before it. The first locks the leases: no attempt ends before this
-- transaction does. The second locks the streams, and only then are ids given: the frames of a stream become
-- visible in the order of their ids. The third finds the rows as they are under the locks and writes each once.
--
-- The planner settings are bound: the cached plans must be right whatever the sizes of the tables and of the
-- call were when they were made. What a call gives is joined by hashing. No column of a table is compared by a
-- plain equality, so that rows of tables cannot be joined by hashing: they are looked up by their key.
CREATE OR REPLACE FUNCTION ff.append_frames(
    partition_keys smallint[],
    execution_ids uuid[],
    attempt_indexes integer[],
    lease_epochs bigint[],
    lease_ids uuid[],
    append_ids uuid[],
    callers integer[],
    modes text[],
    frame_types text[],
    payloads bytea[],
    correlation_ids text[],
    replaces boolean[],
    ttls bigint[],
    maxlen_floors integer[],
    maxlen_ceilings integer[],
    ema_alphas double precision[]
) RETURNS TABLE (caller integer, last_ts_ms bigint, last_seq integer, frame_count bigint, summary_version integer)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_mergejoin = off SET enable_nestloop = off SET enable_hashjoin = on
    AS $$
#variable_conflict use_column
DECLARE
    summaries_kept constant integer := 64;
    held integer[];
    locked integer;
BEGIN
    SELECT array_agg(holder.caller) INTO held
      FROM (SELECT given.caller::integer AS caller
              FROM unnest(partition_keys, execution_ids, attempt_indexes, lease_epochs, lease_ids)
                   WITH ORDINALITY AS given (
                       partition_key, execution_id, attempt_index, lease_epoch, lease_id, caller)
              JOIN ff.lease l
                ON l.partition_key = ANY (ARRAY[given.partition_key])
               AND l.execution_id = ANY (ARRAY[given.execution_id])
             WHERE (l.attempt_index, l.lease_epoch, l.lease_id)
                   IS NOT DISTINCT FROM (given.attempt_index, given.lease_epoch, given.lease_id)
               AND l.lease_expires_at_ms > ff.now_ms()
             ORDER BY given.partition_key, given.execution_id
               FOR KEY SHARE OF l) AS holder;
    IF held IS NULL THEN
        RETURN;
    END IF;

    LOOP
        PERFORM FROM unnest(held) AS holder (caller)
           JOIN ff.stream_meta m
             ON m.partition_key = ANY (ARRAY[partition_keys[holder.caller]])
            AND m.execution_id = ANY (ARRAY[execution_ids[holder.caller]])
            AND m.attempt_index = ANY (ARRAY[attempt_indexes[holder.caller]])
            FOR NO KEY UPDATE OF m;
        GET DIAGNOSTICS locked = ROW_COUNT;
        EXIT WHEN locked = cardinality(held);
        INSERT INTO ff.stream_meta (partition_key, execution_id, attempt_index, created_at_ms, retention_maxlen)
        SELECT b.partition_key, b.execution_id, attempt_indexes[holder.caller], ff.now_ms(),
               coalesce(nullif(ff.policy_number(b.policy #> '{stream_policy,retention_maxlen}', 1000000), 0), 10000)
          FROM unnest(held) AS holder (caller)
          JOIN ff.exec_body b
            ON b.partition_key = ANY (ARRAY[partition_keys[holder.caller]])
           AND b.execution_id = ANY (ARRAY[execution_ids[holder.caller]])
            ON CONFLICT (partition_key, execution_id, attempt_index) DO NOTHING;
    END LOOP;

    RETURN QUERY
    WITH stream AS MATERIALIZED (  -- each with the instant of its new frames; seq goes on within a millisecond
        SELECT holder.caller AS number, m.*, coalesce(v.version, 0) AS version,
               coalesce(v.document_json, '{}') AS document_json,
               coalesce(m.append_id = append_ids[holder.caller], false) AS repeated,
               greatest(ff.now_ms(), m.last_ts_ms) AS ts_ms,
               CASE WHEN ff.now_ms() > m.last_ts_ms THEN 0 ELSE m.last_seq + 1 END AS first_seq
          FROM unnest(held) AS holder (caller)
          JOIN ff.stream_meta m
            ON m.partition_key = ANY (ARRAY[partition_keys[holder.caller]])
           AND m.execution_id = ANY (ARRAY[execution_ids[holder.caller]])
           AND m.attempt_index = ANY (ARRAY[attempt_indexes[holder.caller]])
          LEFT JOIN ff.stream_summary v
            ON v.partition_key = ANY (ARRAY[m.partition_key]) AND v.execution_id = ANY (ARRAY[m.execution_id])
           AND v.attempt_index = ANY (ARRAY[m.attempt_index])
    ), frame AS MATERIALIZED (     -- numbered within its stream, and within its mode
        SELECT given.*, row_number() OVER stream AS place, row_number() OVER of_mode AS place_of_mode
          FROM unnest(callers, modes, frame_types, payloads, correlation_ids, replaces, ttls, maxlen_floors,
                      maxlen_ceilings, ema_alphas) WITH ORDINALITY
            AS given (number, mode, frame_type, payload, correlation_id, replaces, ttl_ms, maxlen_floor,
                      maxlen_ceiling, ema_alpha, ordinal)
         WHERE given.number IN (SELECT number FROM stream WHERE NOT repeated)
        WINDOW stream AS (PARTITION BY given.number ORDER BY given.ordinal),
               of_mode AS (PARTITION BY given.number, given.mode ORDER BY given.ordinal)
    ), added AS (                  -- what each stream gets; the last best-effort frame says how they are counted
        SELECT number, count(*)::integer AS frames, sum(octet_length(payload)) AS bytes,
               count(*) FILTER (WHERE mode = 'durable')::integer AS durable,
               count(*) FILTER (WHERE mode = 'summary')::integer AS summary,
               count(*) FILTER (WHERE mode = 'best_effort')::integer AS best_effort,
               array_agg(convert_from(payload, 'UTF8')::jsonb ORDER BY ordinal) FILTER (WHERE mode = 'summary')
                   AS patches,
               array_agg(replaces ORDER BY ordinal) FILTER (WHERE mode = 'summary') AS replaces,
               (array_agg(ttl_ms ORDER BY ordinal DESC) FILTER (WHERE mode = 'best_effort'))[1] AS ttl_ms,
               (array_agg(maxlen_floor ORDER BY ordinal DESC) FILTER (WHERE mode = 'best_effort'))[1] AS maxlen_floor,
               (array_agg(maxlen_ceiling ORDER BY ordinal DESC) FILTER (WHERE mode = 'best_effort'))[1]
                   AS maxlen_ceiling,
               (array_agg(ema_alpha ORDER BY ordinal DESC) FILTER (WHERE mode = 'best_effort'))[1] AS ema_alpha
          FROM frame GROUP BY number
    ), change AS MATERIALIZED (    -- each stream, what it gets, and how many frames of each mode it keeps
        SELECT stream.*, added.frames, added.bytes, added.durable, added.summary, added.best_effort, added.ttl_ms,
               rate.hz AS rate_hz, stream.retention_maxlen AS durable_bound, summaries_kept AS summary_bound,
               CASE WHEN added.best_effort = 0 THEN stream.best_effort_kept
                    WHEN added.best_effort = 1 AND stream.last_append_ts_ms IS NULL THEN added.maxlen_floor
                    ELSE greatest(added.maxlen_floor, least(added.maxlen_ceiling,
                             ceil(rate.hz * added.ttl_ms / 1000) * 2))::integer END AS best_effort_bound,
               result.merged, result.applied
          FROM stream JOIN added USING (number)
         CROSS JOIN LATERAL (SELECT (CASE WHEN stream.last_append_ts_ms IS NULL
                   THEN added.maxlen_floor * 500.0 / added.ttl_ms
                   ELSE added.ema_alpha * 1000 / greatest(1, stream.ts_ms - stream.last_append_ts_ms)
                        + (1 - added.ema_alpha) * stream.ema_rate_hz END)::double precision AS hz) AS first
         CROSS JOIN LATERAL (     -- those of one call share a millisecond, which counts as one between them
               SELECT CASE added.best_effort WHEN 1 THEN first.hz
                           ELSE 1000 - (1000 - first.hz) * power(1 - added.ema_alpha, added.best_effort - 1) END
                      AS hz) AS rate
          LEFT JOIN LATERAL ff.merge_patches(stream.document_json, added.patches, added.replaces) AS result
            ON true  -- without patches the function is not called: it is strict
    ), inserted AS (               -- but for those that newer frames of this call push out at once
        INSERT INTO ff.stream_frame (
               partition_key, attempt_index, execution_id, ts_ms, ttl_ms, seq, summary_version, mode, frame_type,
               correlation_id, payload)
        SELECT change.partition_key, change.attempt_index, change.execution_id, change.ts_ms, frame.ttl_ms,
               change.first_seq + frame.place - 1,
               CASE frame.mode WHEN 'summary' THEN change.version + frame.place_of_mode END,
               frame.mode, frame.frame_type, frame.correlation_id,
               CASE WHEN frame.replaces
                    THEN convert_to(change.applied[frame.place_of_mode]::text, 'UTF8') ELSE frame.payload END
          FROM frame JOIN change USING (number)
         WHERE frame.place_of_mode > CASE frame.mode WHEN 'durable' THEN change.durable - change.durable_bound
                                                     WHEN 'summary' THEN change.summary - change.summary_bound
                                                     ELSE change.best_effort - change.best_effort_bound END
    ), over_bound AS MATERIALIZED ( -- of each mode the newest frame that is to go
        SELECT change.partition_key, change.execution_id, change.attempt_index, given.mode, newest.ts_ms, newest.seq
          FROM change
         CROSS JOIN LATERAL (VALUES
               ('durable', change.durable_kept, change.durable, change.durable_bound),
               ('summary', change.summary_kept, change.summary, change.summary_bound),
               ('best_effort', change.best_effort_kept, change.best_effort, change.best_effort_bound))
            AS given (mode, kept, more, most)
         CROSS JOIN LATERAL (
               SELECT o.ts_ms, o.seq FROM ff.stream_frame o
                WHERE (o.partition_key, o.execution_id, o.attempt_index)
                    = (change.partition_key, change.execution_id, change.attempt_index)
                  AND o.mode = given.mode
                ORDER BY o.ts_ms, o.seq
               OFFSET least(given.kept, given.kept + given.more - given.most) - 1 LIMIT 1) AS newest
         WHERE given.kept > 0 AND given.more > 0 AND given.kept + given.more > given.most
    ), trimmed AS (
        DELETE FROM ff.stream_frame f USING over_bound o
         WHERE f.partition_key = ANY (ARRAY[o.partition_key]) AND f.execution_id = ANY (ARRAY[o.execution_id])
           AND f.attempt_index = ANY (ARRAY[o.attempt_index])
           AND (f.ts_ms, f.seq) <= (o.ts_ms, o.seq) AND f.mode = o.mode
    ), summarised AS (
        INSERT INTO ff.stream_summary AS v (
               partition_key, attempt_index, execution_id, first_applied_ms, last_updated_ms, version, document_json)
        SELECT partition_key, attempt_index, execution_id, ts_ms, ts_ms, version + summary, merged
          FROM change WHERE summary > 0
            ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE
           SET last_updated_ms = EXCLUDED.last_updated_ms, version = EXCLUDED.version,
               document_json = EXCLUDED.document_json
    ), counted AS (
        UPDATE ff.stream_meta m
           SET append_id = append_ids[change.number], last_ts_ms = change.ts_ms,
               last_seq = change.first_seq + change.frames - 1,
               frame_count = m.frame_count + change.frames, total_bytes = m.total_bytes + change.bytes,
               durable_kept = least(m.durable_kept + change.durable, change.durable_bound),
               summary_kept = least(m.summary_kept + change.summary, change.summary_bound),
               best_effort_kept = least(m.best_effort_kept + change.best_effort, change.best_effort_bound),
               has_durable_frame = m.has_durable_frame OR change.durable + change.summary > 0,
               ema_rate_hz = coalesce(change.rate_hz, m.ema_rate_hz),
               last_append_ts_ms = CASE change.best_effort WHEN 0 THEN m.last_append_ts_ms ELSE change.ts_ms END,
               maxlen_applied_last = CASE change.best_effort WHEN 0 THEN m.maxlen_applied_last
                                          ELSE change.best_effort_bound END,
               best_effort_ttl_ms = coalesce(change.ttl_ms, m.best_effort_ttl_ms),
               expires_at_ms = CASE WHEN m.has_durable_frame OR change.durable + change.summary > 0 THEN NULL
                                    ELSE coalesce(m.expires_at_ms, change.ts_ms + 2 * change.ttl_ms) END
          FROM change
         WHERE m.partition_key = ANY (ARRAY[change.partition_key])
           AND m.execution_id = ANY (ARRAY[change.execution_id])
           AND m.attempt_index = ANY (ARRAY[change.attempt_index])
    )
    SELECT number, coalesce(change.ts_ms, stream.last_ts_ms),
           coalesce(change.first_seq + change.frames - 1, stream.last_seq),
           stream.frame_count + coalesce(change.frames, 0), stream.version + coalesce(change.summary, 0)
      FROM stream LEFT JOIN change USING (number);

    -- A process that waits for one stream is told of all, and knows which of its readers to wake.
    IF EXISTS (SELECT FROM ff.waiter w WHERE w.topic = 'stream' AND w.waiting_until_ms > ff.now_ms()) THEN
        PERFORM pg_notify('ff_wake', 'stream:' || execution_ids[holder.caller])
           FROM unnest(held) AS holder (caller);
    END IF;
END
$$;
