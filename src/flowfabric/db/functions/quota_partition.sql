-- The partition of a key of a limit. An execution that has a limit, and neither an idempotency key nor a
-- flow, is in the partition of its key.
CREATE OR REPLACE FUNCTION ff.quota_partition(quota_key_id bigint, num_flow_partitions integer) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((quota_key_id % num_flow_partitions + num_flow_partitions) % num_flow_partitions)::smallint;
