-- The value with null for every text __ff_null__ in it, at any depth: how a merge patch, where null deletes a
-- key, stores a null.
CREATE OR REPLACE FUNCTION ff.null_leaves(given jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    IF position('__ff_null__' IN given::text) = 0 THEN
        RETURN given;
    END IF;
    RETURN CASE jsonb_typeof(given)
        WHEN 'object' THEN
            (SELECT jsonb_object_agg(key, ff.null_leaves(value)) FROM jsonb_each(given))
        WHEN 'array' THEN
            (SELECT jsonb_agg(ff.null_leaves(value) ORDER BY place)
               FROM jsonb_array_elements(given) WITH ORDINALITY AS element (value, place))
        ELSE CASE given #>> '{}' WHEN '__ff_null__' THEN 'null' ELSE given END
    END;
END
$$;
