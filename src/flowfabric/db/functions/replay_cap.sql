-- How often an execution may be replayed: max_replay_count of the policy, or 10 if there is none that can
-- be read.
CREATE OR REPLACE FUNCTION ff.replay_cap(policy jsonb) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN coalesce(ff.policy_number(policy -> 'max_replay_count', 2147483647), 10)::integer;
