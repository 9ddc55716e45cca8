-- The whole number that a stored policy has at one place: NULL if there is none, or if the value is no
-- number or negative. A fraction is rounded, and what is over `largest` counts as `largest`. Never raises:
-- claims and sweeps read the policies of many executions at once, and one strange policy, which a writer
-- other than this release stored, must not stop the others.
CREATE OR REPLACE FUNCTION ff.policy_number(found jsonb, largest bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE jsonb_typeof(found) WHEN 'number'
                THEN nullif(greatest(least(found::numeric, largest), -1)::bigint, -1) END;
