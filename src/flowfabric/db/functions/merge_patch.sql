-- The document after a JSON merge patch (RFC 7396), both of them objects: a null deletes the key, an object is
-- merged, anything else replaces. A value that the patch has as the text __ff_null__ stays so here.
CREATE OR REPLACE FUNCTION ff.merge_patch(document jsonb, patch jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    merged jsonb := CASE jsonb_typeof(document) WHEN 'object' THEN document ELSE '{}' END;
    field text;
    given jsonb;
BEGIN
    FOR field, given IN SELECT key, value FROM jsonb_each(patch) LOOP
        IF jsonb_typeof(given) = 'null' THEN
            merged := merged - field;
        ELSIF jsonb_typeof(given) = 'object' THEN
            merged := merged || jsonb_build_object(field, ff.merge_patch(merged -> field, given));
        ELSE
            merged := merged || jsonb_build_object(field, given);
        END IF;
    END LOOP;
    RETURN merged;
END
$$;
