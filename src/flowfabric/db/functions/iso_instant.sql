-- The instant as ISO 8601 in UTC, for messages.
CREATE OR REPLACE FUNCTION ff.iso_instant(at_ms bigint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN to_char(to_timestamp(at_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
