-- The id of a route: 8 bytes of SHA-256 over its columns, so that every process and every shard computes
-- the same id. Lengths are hashed too, so that different columns never give the same text to hash.
CREATE OR REPLACE FUNCTION ff.route_id(
    namespace text, lane_id text, execution_kind text, required_capabilities text[]
) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('x' || encode(substr(sha256(convert_to(
        concat_ws(E'\x1f', octet_length(namespace), namespace, lane_id, octet_length(execution_kind),
                  execution_kind, array_to_string(required_capabilities, ',')),
        'UTF8')), 1, 8), 'hex'))::bit(64)::bigint;
