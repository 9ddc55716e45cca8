-- backward_compatible
-- Claim and reclaim grants of remote schedulers, and the keys that sign them.

CREATE TABLE ff.waitpoint_hmac (
    kid           text PRIMARY KEY,
    secret        bytea NOT NULL,
    rotated_at_ms bigint NOT NULL,
    active        boolean NOT NULL,
    expires_at_ms bigint,
    CONSTRAINT waitpoint_hmac_kid CHECK (kid <> '' AND strpos(kid, ':') = 0),
    CONSTRAINT waitpoint_hmac_active_never_expires CHECK (active = (expires_at_ms IS NULL))
);
CREATE UNIQUE INDEX waitpoint_hmac_one_active ON ff.waitpoint_hmac (active) WHERE active;

-- An unexpired grant of kind `claim` reserves its execution for one worker; an expired one means nothing.
CREATE TABLE ff.claim_grant (
    partition_key       smallint NOT NULL,
    grant_id            bytea NOT NULL,
    execution_id        uuid NOT NULL,
    kind                text NOT NULL,
    worker_id           text NOT NULL,
    worker_instance_id  text NOT NULL,
    lane_id             text NOT NULL,
    worker_capabilities text[] NOT NULL,
    capability_hash     text,
    route_snapshot_json jsonb,
    admission_summary   text,
    grant_ttl_ms        bigint NOT NULL,
    issued_at_ms        bigint NOT NULL,
    expires_at_ms       bigint NOT NULL,
    PRIMARY KEY (partition_key, grant_id),
    CONSTRAINT claim_grant_kind CHECK (kind IN ('claim', 'reclaim'))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
CREATE INDEX claim_grant_execution ON ff.claim_grant (partition_key, execution_id);
CREATE INDEX claim_grant_expiry ON ff.claim_grant (expires_at_ms);

-- Is the execution promised to another worker than this one?
CREATE FUNCTION ff.promised(of_partition smallint, of_execution uuid, to_other_than text) RETURNS boolean
    LANGUAGE sql STABLE
    RETURN EXISTS (SELECT FROM ff.claim_grant g
                    WHERE (g.partition_key, g.execution_id) = (of_partition, of_execution)
                      AND g.kind = 'claim' AND g.expires_at_ms > ff.now_ms()
                      AND g.worker_id <> to_other_than);
