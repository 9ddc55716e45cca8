-- Counts usage, many reports in one call, in the order given; each is counted whole or not at all. A report
-- names a budget and, as a JSON object, how much more of each dimension was used. With given_execution_id
-- the amounts are also added to the ledger of the execution, from which ff.release_spend takes them back.
--
-- Answers one row for each report:
--   ok               counted
--   already_applied  the key was counted before; nothing changed
--   soft_breach      counted; the dimension is over its soft limit now, or over its hard limit in a budget that
--                    only warns. current_usage is the value after.
--   hard_breach      not counted: the dimension would be over its hard limit. current_usage is the value before.
-- A repeated report that had been over a soft limit answers so again, unless it is for the ledger.
--
-- Lock order: keys, budgets, usage rows, ledger rows, each sorted. A key that somebody else is about to count
-- is waited for. The planner settings are bound: the cached plans must look rows up by key.
CREATE OR REPLACE FUNCTION ff.report_usage(
    given_budget_id uuid[], given_deltas jsonb[], given_dedup_key text[],
    given_execution_partition smallint[] DEFAULT NULL, given_execution_id uuid[] DEFAULT NULL,
    given_now_ms bigint DEFAULT NULL
) RETURNS TABLE (ordinal integer, outcome text, dimension text, current_usage bigint, limit_value bigint)
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    AS $$
#variable_conflict use_column
DECLARE
    now_ms constant bigint := coalesce(given_now_ms, ff.now_ms());
    kept_ms constant bigint := 86400000;
    spends constant boolean := given_execution_id IS NOT NULL;
    partitions smallint[] := ARRAY(SELECT ff.budget_partition(b.id)
                                     FROM unnest(given_budget_id) WITH ORDINALITY AS b (id, n) ORDER BY b.n);
    taken text[] := '{}';        -- keys that this call counts, not used yet
    place text;
    policy ff.budget_policy;
    breach record;
    stored jsonb;
    found_one boolean;
BEGIN
    IF EXISTS (SELECT FROM unnest(given_dedup_key) AS k WHERE k <> '') THEN
        WITH placed AS (
            INSERT INTO ff.budget_usage_dedup AS d (partition_key, budget_id, dedup_key, applied_at_ms, expires_at_ms)
            SELECT DISTINCT g.partition_key, g.budget_id, g.dedup_key, now_ms, now_ms + kept_ms
              FROM unnest(partitions, given_budget_id, given_dedup_key) AS g (partition_key, budget_id, dedup_key)
             WHERE g.dedup_key <> ''
             ORDER BY 1, 2, 3
                ON CONFLICT (partition_key, budget_id, dedup_key) DO UPDATE
               SET outcome_json = NULL, applied_at_ms = EXCLUDED.applied_at_ms,
                   expires_at_ms = EXCLUDED.expires_at_ms
             WHERE d.expires_at_ms <= now_ms
         RETURNING d.budget_id, d.dedup_key
        )
        SELECT coalesce(array_agg(placed.budget_id || ' ' || placed.dedup_key), '{}') INTO taken FROM placed;
    END IF;

    PERFORM ff.lock_budgets(given_budget_id);

    INSERT INTO ff.budget_usage (partition_key, budget_id, dimensions_key, current_value, updated_at_ms)
    SELECT DISTINCT g.partition_key, g.budget_id, d.name COLLATE "C", 0, now_ms
      FROM unnest(partitions, given_budget_id, given_deltas) AS g (partition_key, budget_id, deltas),
           jsonb_object_keys(g.deltas) AS d (name)
     ORDER BY 1, 2, 3
        ON CONFLICT DO NOTHING;
    PERFORM FROM (SELECT DISTINCT g.partition_key, g.budget_id, d.name COLLATE "C" AS name
                    FROM unnest(partitions, given_budget_id, given_deltas) AS g (partition_key, budget_id, deltas),
                         jsonb_object_keys(g.deltas) AS d (name)
                   ORDER BY 1, 2, 3) AS g
       JOIN ff.budget_usage u
         ON (u.partition_key, u.budget_id, u.dimensions_key) = (g.partition_key, g.budget_id, g.name)
        FOR UPDATE OF u;

    FOR i IN 1 .. cardinality(given_budget_id) LOOP
        ordinal := i;
        dimension := NULL;
        current_usage := NULL;
        limit_value := NULL;
        place := NULL;
        IF given_dedup_key[i] <> '' THEN
            place := given_budget_id[i] || ' ' || given_dedup_key[i];
            IF place = ANY (taken) THEN
                taken := array_remove(taken, place);
            ELSE
                SELECT d.outcome_json, true INTO stored, found_one FROM ff.budget_usage_dedup d
                 WHERE (d.partition_key, d.budget_id, d.dedup_key)
                     = (partitions[i], given_budget_id[i], given_dedup_key[i]);
                IF found_one THEN
                    outcome := 'already_applied';
                    IF stored ? 'SoftBreach' AND NOT spends THEN
                        outcome := 'soft_breach';
                        dimension := stored #>> '{SoftBreach,dimension}';
                        current_usage := (stored #>> '{SoftBreach,current_usage}')::bigint;
                        limit_value := (stored #>> '{SoftBreach,soft_limit}')::bigint;
                    END IF;
                    RETURN NEXT;
                    CONTINUE;
                END IF;
                -- An earlier report of this call had the key, and was refused.
                INSERT INTO ff.budget_usage_dedup (partition_key, budget_id, dedup_key, applied_at_ms, expires_at_ms)
                VALUES (partitions[i], given_budget_id[i], given_dedup_key[i], now_ms, now_ms + kept_ms);
            END IF;
        END IF;

        SELECT p.* INTO policy FROM ff.budget_policy p
         WHERE (p.partition_key, p.budget_id) = (partitions[i], given_budget_id[i]);

        -- The first dimension that would be over its hard limit.
        SELECT u.dimensions_key, u.current_value, d.delta, l.hard INTO breach
          FROM jsonb_each(given_deltas[i]) AS g (name, value)
         CROSS JOIN LATERAL (SELECT (g.value #>> '{}')::bigint) AS d (delta)
          JOIN ff.budget_usage u
            ON (u.partition_key, u.budget_id, u.dimensions_key) = (partitions[i], given_budget_id[i], g.name)
         CROSS JOIN LATERAL (SELECT (policy.policy_json #>> ARRAY['hard_limits', g.name])::bigint) AS l (hard)
         WHERE l.hard > 0 AND u.current_value::numeric + d.delta > l.hard
         ORDER BY u.dimensions_key COLLATE "C" LIMIT 1;
        IF breach.dimensions_key IS NOT NULL THEN
            UPDATE ff.budget_policy p
               SET breach_count = p.breach_count + 1, last_breach_at_ms = now_ms,
                   last_breach_dim = breach.dimensions_key, updated_at_ms = now_ms
             WHERE (p.partition_key, p.budget_id) = (partitions[i], given_budget_id[i]);
            dimension := breach.dimensions_key;
            limit_value := breach.hard;
            IF policy.enforcement_mode = 'strict' THEN
                IF place IS NOT NULL THEN
                    DELETE FROM ff.budget_usage_dedup d
                     WHERE (d.partition_key, d.budget_id, d.dedup_key)
                         = (partitions[i], given_budget_id[i], given_dedup_key[i]);
                END IF;
                outcome := 'hard_breach';
                current_usage := breach.current_value;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;

        SELECT u.dimensions_key INTO place
          FROM jsonb_each_text(given_deltas[i]) AS g (name, delta)
          JOIN ff.budget_usage u
            ON (u.partition_key, u.budget_id, u.dimensions_key) = (partitions[i], given_budget_id[i], g.name)
         WHERE u.current_value::numeric + g.delta::bigint > 9223372036854775807 LIMIT 1;
        IF place IS NOT NULL THEN
            RAISE invalid_parameter_value USING MESSAGE = format(
                'invalid_input: the usage of dimension %s of budget %s cannot be over 2^63-1', to_json(place),
                given_budget_id[i]);
        END IF;
        UPDATE ff.budget_usage u
           SET current_value = u.current_value + g.delta::bigint, updated_at_ms = ff.now_ms()
          FROM jsonb_each_text(given_deltas[i]) AS g (name, delta)
         WHERE (u.partition_key, u.budget_id, u.dimensions_key) = (partitions[i], given_budget_id[i], g.name);
        IF spends THEN
            INSERT INTO ff.budget_usage_by_exec AS s (
                   partition_key, budget_id, execution_partition, execution_id, dimensions_key, delta_total,
                   period_no, updated_at_ms)
            SELECT partitions[i], given_budget_id[i], given_execution_partition[i], given_execution_id[i], g.name,
                   g.delta::bigint, coalesce(policy.period_no, 0), now_ms
              FROM jsonb_each_text(given_deltas[i]) AS g (name, delta)
             ORDER BY g.name COLLATE "C"
                ON CONFLICT (partition_key, budget_id, execution_id, execution_partition, dimensions_key) DO UPDATE
               SET delta_total = EXCLUDED.delta_total
                                 + CASE WHEN s.period_no = EXCLUDED.period_no THEN s.delta_total ELSE 0 END,
                   period_no = EXCLUDED.period_no, updated_at_ms = EXCLUDED.updated_at_ms, unsettled = true;
        END IF;

        outcome := 'ok';
        IF breach.dimensions_key IS NOT NULL THEN
            outcome := 'soft_breach';
            current_usage := breach.current_value + breach.delta;
        ELSE
            SELECT u.dimensions_key, u.current_value, l.soft INTO dimension, current_usage, limit_value
              FROM jsonb_object_keys(given_deltas[i]) AS g (name)
              JOIN ff.budget_usage u
                ON (u.partition_key, u.budget_id, u.dimensions_key) = (partitions[i], given_budget_id[i], g.name)
             CROSS JOIN LATERAL (SELECT (policy.policy_json #>> ARRAY['soft_limits', g.name])::bigint) AS l (soft)
             WHERE l.soft > 0 AND u.current_value > l.soft
             ORDER BY u.dimensions_key COLLATE "C" LIMIT 1;
            IF dimension IS NOT NULL THEN
                outcome := 'soft_breach';
                UPDATE ff.budget_policy p
                   SET soft_breach_count = p.soft_breach_count + 1, updated_at_ms = now_ms
                 WHERE (p.partition_key, p.budget_id) = (partitions[i], given_budget_id[i]);
            END IF;
        END IF;
        IF given_dedup_key[i] <> '' THEN
            UPDATE ff.budget_usage_dedup d
               SET outcome_json = CASE outcome
                       WHEN 'soft_breach' THEN jsonb_build_object('SoftBreach', jsonb_build_object(
                           'dimension', dimension, 'current_usage', current_usage, 'soft_limit', limit_value))
                       ELSE '"Ok"' END
             WHERE (d.partition_key, d.budget_id, d.dedup_key)
                 = (partitions[i], given_budget_id[i], given_dedup_key[i]);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
