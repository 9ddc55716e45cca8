-- Says why an execution or a flow cannot have these tags, or returns NULL: at most 64 tags, with keys and
-- values of at most 16,384 bytes in all. Tags that are no object are none of the function's business.
CREATE OR REPLACE FUNCTION ff.tags_fault(tags jsonb) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    number bigint;
    size bigint;
BEGIN
    IF jsonb_typeof(tags) <> 'object' THEN
        RETURN NULL;
    END IF;
    SELECT count(*), sum(octet_length(t.key) + octet_length(t.value)) INTO number, size
      FROM jsonb_each_text(tags) AS t;
    RETURN CASE WHEN number > 64 THEN format('tags are %s, and must be at most 64', number)
                WHEN size > 16384 THEN format('tags have %s bytes, and must have at most 16384', size) END;
END
$$;
