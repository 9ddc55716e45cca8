-- The id of the budget that a caller names: a uuid as text is the id itself, any other text is a name, from
-- which the id is derived. flowfabric.budgets.budget_id is the same function in Python.
CREATE OR REPLACE FUNCTION ff.budget_id(given text) RETURNS uuid
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    digest bytea;
BEGIN
    IF given ~* '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN
        RETURN given::uuid;
    END IF;
    digest := substr(sha256(convert_to('flowfabric.budget' || E'\x1f' || given, 'UTF8')), 1, 16);
    digest := set_byte(digest, 6, (get_byte(digest, 6) & 15) | 80);
    digest := set_byte(digest, 8, (get_byte(digest, 8) & 63) | 128);
    RETURN encode(digest, 'hex')::uuid;
END
$$;
