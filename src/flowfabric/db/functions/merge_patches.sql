-- The document after these merge patches, one after the other, and the patches as they were applied. A patch
-- that replaces also deletes the keys of the document that it does not name.
CREATE OR REPLACE FUNCTION ff.merge_patches(
    document jsonb, patches jsonb[], replaces boolean[], OUT merged jsonb, OUT applied jsonb[])
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
    SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    merged := document;
    applied := patches;
    FOR number IN 1 .. cardinality(patches) LOOP
        IF replaces[number] THEN
            applied[number] := coalesce(
                (SELECT jsonb_object_agg(key, NULL) FROM jsonb_object_keys(merged) AS key), '{}') || patches[number];
        END IF;
        merged := ff.null_leaves(ff.merge_patch(merged, applied[number]));
    END LOOP;
END
$$;
