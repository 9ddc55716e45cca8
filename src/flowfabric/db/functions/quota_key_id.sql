-- The id of a key of a limit: 8 bytes of SHA-256 over the id of the limit and the key, the same in every
-- process. The id of a named limit is computed from its namespace and name.
CREATE OR REPLACE FUNCTION ff.quota_key_id(quota_policy_id uuid, dimension text) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ('x' || encode(substr(sha256(uuid_send(quota_policy_id) || convert_to(dimension, 'UTF8')), 1, 8),
                          'hex'))::bit(64)::bigint;
