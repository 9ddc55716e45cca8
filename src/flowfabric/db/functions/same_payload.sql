-- True if two payloads have the same bytes, or are both JSON texts of the same value: SQL and Python write
-- JSON with other spaces, and the keys of an object have no order.
CREATE OR REPLACE FUNCTION ff.same_payload(
    stored bytea, stored_encoding text, given bytea, given_encoding text
) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF stored = given THEN
        RETURN true;
    ELSIF (stored_encoding = 'json' AND given_encoding = 'json') IS NOT TRUE THEN
        RETURN false;
    END IF;
    BEGIN
        RETURN convert_from(stored, 'UTF8')::jsonb = convert_from(given, 'UTF8')::jsonb;
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        RETURN false;  -- not JSON that Postgres reads
    END;
END
$$;
