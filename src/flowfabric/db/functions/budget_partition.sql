-- The partition of a budget: crc16 of its id modulo the number of budget partitions of this database.
CREATE OR REPLACE FUNCTION ff.budget_partition(budget_id uuid) RETURNS smallint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (ff.crc16(uuid_send(budget_id))
            % coalesce((SELECT num_budget_partitions FROM ff.partition_config), 32))::smallint;
