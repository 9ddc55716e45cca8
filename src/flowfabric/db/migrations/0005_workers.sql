-- Which worker processes live, and what they offer.

CREATE TABLE ff.worker_registry (
    partition_key      smallint NOT NULL,
    namespace          text NOT NULL,
    worker_instance_id text NOT NULL,
    worker_id          text NOT NULL,
    lanes              text[] NOT NULL,
    capabilities       text[] NOT NULL,
    kinds              text[] NOT NULL,
    concurrency        integer NOT NULL,
    last_heartbeat_ms  bigint NOT NULL,
    liveness_ttl_ms    bigint NOT NULL,
    registered_at_ms   bigint NOT NULL,
    PRIMARY KEY (partition_key, namespace, worker_instance_id)
) WITH (fillfactor = 50);
