-- The partition of an idempotency key. The record of the key and its execution are in the same partition,
-- so that one partition decides whether a submit is a duplicate.
CREATE OR REPLACE FUNCTION ff.key_partition(namespace text, idempotency_key text, num_flow_partitions integer)
RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (('x' || encode(substr(sha256(convert_to(
        concat_ws(E'\x1f', namespace, idempotency_key), 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint
        % num_flow_partitions)::smallint;
