-- The only source of time for stored instants: milliseconds since 1970. The value does not change within
-- a statement. Tests replace the body by a clock that they set.
CREATE OR REPLACE FUNCTION ff.now_ms() RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN floor(date_part('epoch', statement_timestamp()) * 1000)::bigint;
