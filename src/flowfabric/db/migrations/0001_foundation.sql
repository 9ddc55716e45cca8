-- The clock, the ledger of migrations and the partition counts every process must agree on.

-- The only source of instants. Stable within a statement; tests replace its body by a settable clock.
CREATE FUNCTION ff.now_ms() RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN floor(date_part('epoch', statement_timestamp()) * 1000)::bigint;

CREATE TABLE ff.partition_config (
    singleton             boolean PRIMARY KEY DEFAULT true,
    num_flow_partitions   integer NOT NULL,
    num_budget_partitions integer NOT NULL,
    num_quota_partitions  integer NOT NULL,
    version               text NOT NULL,
    CONSTRAINT partition_config_singleton CHECK (singleton),
    CONSTRAINT partition_config_counts CHECK (
        num_flow_partitions BETWEEN 1 AND 32767
        AND num_budget_partitions BETWEEN 1 AND 32767
        AND num_quota_partitions BETWEEN 1 AND 32767)
);

-- Who waits for a topic ('lane:<lane_id>', 'completion'). Nobody waiting: nobody is notified.
-- Unlogged: a lost row costs one polling interval, never work.
CREATE UNLOGGED TABLE ff.waiter (
    topic            text NOT NULL,
    waiter_id        text NOT NULL,
    waiting_until_ms bigint NOT NULL,
    PRIMARY KEY (topic, waiter_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Rings the bell of `topic` at commit, if somebody waits for it; equal notifications collapse.
CREATE FUNCTION ff.wake(rung_topic text) RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    IF EXISTS (SELECT FROM ff.waiter
                WHERE topic = rung_topic AND waiting_until_ms > ff.now_ms()) THEN
        PERFORM pg_notify('ff_wake', rung_topic);
        RETURN true;
    END IF;
    RETURN false;
END
$$;
