-- Computes the state of a join from its counters. Satisfied is checked before impossible. A join that
-- expects more edges, or that can still reach its quorum with later edges, is pending.
CREATE OR REPLACE FUNCTION ff.group_decision(
    policy_kind text, k integer, expected_n integer, succeeded integer, failed integer, skipped integer,
    running integer
) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE
               WHEN n < expected_n THEN 'pending'
               WHEN n > 0 AND succeeded >= required THEN 'satisfied'
               WHEN failed + skipped > n - required AND (n >= required OR running = 0) THEN 'impossible'
               ELSE 'pending'
           END
      FROM (SELECT succeeded + failed + skipped + running AS n) AS edges,
           LATERAL (SELECT CASE policy_kind WHEN 'all_of' THEN n WHEN 'any_of' THEN 1 ELSE k END AS required) AS r
    $$;
