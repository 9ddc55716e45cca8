"""The parts of the statements of a search: each finds executions by the index that has them.

One statement for each kind of filter: each reads the index that has its answers in their order, for
every route that matches, and no more rows of a route than a page has. What has no index is compared
with the rows on the way.
"""

from __future__ import annotations

from typing import Final, LiteralString

_SINCE: Final[LiteralString] = """e.created_at_ms
                >= greatest(%(since_ms)s::bigint, ff.now_ms() - %(within_ms)s::bigint)"""

# In which order executions are found: is `e` in the page or after it, and by what is sorted?

AFTER_NEWER: Final[LiteralString] = f"""(e.created_at_ms, e.execution_id)
                 < (%(before_ms)s::bigint, %(before_id)s::uuid)
               AND {_SINCE}"""
NEWEST: Final[LiteralString] = """
             ORDER BY e.created_at_ms DESC, e.execution_id DESC LIMIT %(limit)s"""

# For a count: any of them, so that a route is read only until there are enough.
ANY_ORDER: Final[LiteralString] = """
             LIMIT %(limit)s"""

AFTER_OLDER: Final[LiteralString] = f"""(e.created_at_ms, e.execution_id)
                 > (%(after_ms)s::bigint, %(after_id)s::uuid)
               AND e.created_at_ms < %(before_ms)s::bigint
               AND {_SINCE}"""
OLDEST: Final[LiteralString] = """
             ORDER BY e.created_at_ms, e.execution_id LIMIT %(limit)s"""

# Of executions that a worker holds: those whose attempt began first.
AFTER_LONGER: Final[LiteralString] = f"""(l.attempt_started_at_ms, e.execution_id)
                 > (%(after_ms)s::bigint, %(after_id)s::uuid)
               AND e.created_at_ms < %(before_ms)s::bigint
               AND {_SINCE}"""
LONGEST: Final[LiteralString] = """
             ORDER BY e.attempt_started_at_ms, e.execution_id LIMIT %(limit)s"""

_ROUTES: Final[LiteralString] = """
WITH RECURSIVE routes AS MATERIALIZED (
    SELECT route_id FROM ff.route
     WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
       AND (%(lane_id)s::text IS NULL OR lane_id = %(lane_id)s)
       AND (%(execution_kinds)s::text[] IS NULL OR execution_kind = ANY (%(execution_kinds)s))
       AND (%(route_ids)s::bigint[] IS NULL OR route_id = ANY (%(route_ids)s))
)"""


def _in_state(row: LiteralString) -> LiteralString:
    return f"""
               AND (%(public_states)s::text[] IS NULL
                    OR {row}.public_state = ANY (%(public_states)s))"""


def _refined(row: LiteralString) -> LiteralString:
    """What no index has: the flow, tags, attempts, and a text in the reason.

    The planner takes a CASE for true every second time. It would expect hardly a row to match all
    these conditions together, and then read and sort a whole route instead of its first rows.
    """
    return f"""
               CASE WHEN {row}.total_attempt_count >= %(min_attempts)s::integer
                     AND (%(flow_id)s::uuid IS NULL OR {row}.flow_id = %(flow_id)s)
                     AND (%(tags)s::text[] IS NULL
                          OR {row}.tags @> ANY (%(tags)s::text[]::jsonb[]))
                     AND (%(reason)s::text IS NULL
                          OR strpos(lower(concat({row}.failure_reason, {row}.cancellation_reason)),
                                    lower(%(reason)s)) > 0)
                    THEN true ELSE false END"""


def page_of(name: LiteralString, found: LiteralString, by: LiteralString) -> LiteralString:
    """The statement that describes the executions of a page, in an order of `e`.

    With many routes the planner takes `found` to be so dear that, beside it, it does not care how
    a page is looked up, and may read all executions: OFFSET 0 makes it look up one by one.
    """
    return (
        name
        + _ROUTES
        + found
        + f""", page AS (
    SELECT e.* FROM found e{by}
)
SELECT e.partition_key, e.execution_id, r.namespace, r.lane_id, r.execution_kind, e.public_state,
       e.priority, e.total_attempt_count, e.created_at_ms, e.started_at_ms, e.terminal_at_ms,
       coalesce(e.failure_reason, e.cancellation_reason) AS reason, e.worker_instance_id,
       e.flow_id, e.tags, e.blocking_reason, e.attempt_started_at_ms,
       (SELECT b.member_name FROM ff.exec_body b
         WHERE (b.partition_key, b.execution_id) = (e.partition_key, e.execution_id))
  FROM page CROSS JOIN LATERAL (
        SELECT e.* FROM ff.execution e
         WHERE (e.partition_key, e.execution_id) = (page.partition_key, page.execution_id)
        OFFSET 0) AS e
  JOIN ff.route r USING (route_id){by}
"""
    )


def count_of(name: LiteralString, found: LiteralString) -> LiteralString:
    """The statement that counts executions, up to the limit."""
    return (
        name
        + _ROUTES
        + found
        + """
SELECT count(*) AS found FROM (SELECT FROM found LIMIT %(limit)s) AS counted
"""
    )


# Where executions are found.


def by_time(within: LiteralString, by: LiteralString) -> LiteralString:
    """By age within their routes."""
    return f""", found AS (
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
             WHERE e.route_id = routes.route_id AND {_refined("e")}
               AND {within}{by}) AS e
)"""


def by_time_of_all(within: LiteralString, by: LiteralString) -> LiteralString:
    """As `by_time`, for a page: where all routes have many, few rows beside those of it are read.

    The first of each route are found in the index alone, and only the first of all are looked up.
    """
    return f""", newest AS MATERIALIZED (
    SELECT core.partition_key, e.execution_id, e.created_at_ms, core.matches
      FROM (SELECT DISTINCT e.* FROM (
                    SELECT e.* FROM routes CROSS JOIN LATERAL (
                            SELECT e.route_id, e.execution_id, e.created_at_ms FROM ff.exec_core e
                             WHERE e.route_id = routes.route_id AND {within}{by}) AS e{by}) AS e
           ) AS e
     CROSS JOIN LATERAL (
            SELECT c.partition_key, {_refined("c")} AS matches
              FROM ff.exec_core c
             WHERE (c.route_id, c.created_at_ms, c.execution_id)
                 = (e.route_id, e.created_at_ms, e.execution_id)
            OFFSET 0) AS core
), mixed AS (         -- is one not asked for? Then each has to be looked at
    SELECT count(*) > 0 AS mixed FROM newest WHERE NOT matches
), found AS (
    SELECT partition_key, execution_id, created_at_ms FROM newest
     WHERE NOT (SELECT mixed FROM mixed)
     UNION ALL
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
             WHERE e.route_id = routes.route_id AND {_refined("e")}
               AND {within}{by}) AS e
     WHERE (SELECT mixed FROM mixed)
)"""


def retried(within: LiteralString, by: LiteralString) -> LiteralString:
    """Those that had more than one attempt, in any state but that of a worker that holds them."""
    return f""", found AS (
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
             WHERE e.attempt_index > 0 AND e.route_id = routes.route_id AND {_refined("e")}
               AND (%(public_states)s::text[] IS NULL OR EXISTS (
                       SELECT FROM ff.execution x
                        WHERE (x.partition_key, x.execution_id) = (e.partition_key, e.execution_id)
                          AND x.public_state = ANY (%(public_states)s) AND NOT x.leased))
               AND {within}{by}) AS e
)"""


_ASKED: Final[LiteralString] = """, asked AS MATERIALIZED (  -- a state that something is in
    SELECT a.state FROM unnest(%(exceptional)s::text[]) AS a (state)
     WHERE (SELECT true FROM ff.exec_core x WHERE x.exceptional_state = a.state LIMIT 1)
)"""


def _exceptional(within: LiteralString, by: LiteralString) -> LiteralString:
    return f"""
    SELECT e.* FROM asked CROSS JOIN routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
             WHERE e.exceptional_state = asked.state AND e.route_id = routes.route_id
               AND {_refined("e")}
               AND {within}{by}) AS e"""


def exceptional(within: LiteralString, by: LiteralString) -> LiteralString:
    """Delayed, blocked, suspended, or ended without success."""
    return f"""{_ASKED}, found AS ({_exceptional(within, by)}
)"""


def unsuccessful(within: LiteralString, by: LiteralString) -> LiteralString:
    """Ended without success, in all routes: one index has them in their order.

    By routes, as many of each would be read as a page has, before the first of all are known. The
    CASE keeps the planner from an index that has the states and another order.
    """
    return f""", found AS (
    SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
     WHERE e.exceptional_state IN ('failed', 'cancelled', 'expired', 'skipped')
       AND CASE WHEN e.exceptional_state = ANY (%(exceptional)s::text[])
                THEN true ELSE false END
       AND {_refined("e")}
       AND {within}{by}
)"""


def divergent(within: LiteralString, by: LiteralString) -> LiteralString:
    """Suspended, because their handlers made other calls than before."""
    return f""", found AS (
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
             WHERE e.exceptional_state = 'suspended' AND e.route_id = routes.route_id
               AND starts_with(e.blocking_detail, %(divergence)s) AND {_refined("e")}
               AND {within}{by}) AS e
)"""


def patch_missing(within: LiteralString, by: LiteralString) -> LiteralString:
    """What has not ended and has begun, unless its handler recorded that it has the new branch.

    The value of such an entry is `true` in JSON or in MessagePack.
    """
    return f""", found AS (
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.execution e
             WHERE e.route_id = routes.route_id AND e.lifecycle_phase <> 'terminal'{_in_state("e")}
               AND e.total_attempt_count > 0 AND {_refined("e")}
               AND NOT EXISTS (
                       SELECT FROM ff.journal j
                        WHERE (j.partition_key, j.execution_id) = (e.partition_key, e.execution_id)
                          AND j.kind = 'patch' AND j.name = %(patch)s
                          AND j.value IN ('true'::bytea, '\\xc3'::bytea))
               AND {within}{by}) AS e
)"""


def completed(within: LiteralString, by: LiteralString) -> LiteralString:
    """Those that succeeded, by the events of their ends: the queue is not read."""
    return f""", newest AS MATERIALIZED (
    SELECT e.partition_key, e.execution_id, e.created_at_ms, core.matches,
           row_number() OVER (PARTITION BY e.partition_key, e.execution_id) AS nth
      FROM (SELECT e.* FROM routes CROSS JOIN LATERAL (
                    SELECT e.partition_key, e.execution_id, e.created_at_ms
                      FROM ff.completion_event e
                     WHERE e.route_id = routes.route_id AND e.outcome = 'success'
                       AND {within}{by}) AS e{by}) AS e
     CROSS JOIN LATERAL (
            SELECT c.terminal_outcome = 'success' AND {_refined("c")} AS matches
              FROM ff.exec_core c
             WHERE (c.partition_key, c.execution_id) = (e.partition_key, e.execution_id)
            OFFSET 0) AS core
), mixed AS (         -- was one replayed, or is one not asked for? Then each has to be looked at
    SELECT count(*) > 0 AS mixed FROM newest WHERE nth > 1 OR NOT matches
), found AS (
    SELECT partition_key, execution_id, created_at_ms FROM newest
     WHERE NOT (SELECT mixed FROM mixed)
     UNION ALL
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms
              FROM ff.completion_event e CROSS JOIN LATERAL (
                   SELECT c.terminal_outcome = 'success' AND {_refined("c")} AS matches
                     FROM ff.exec_core c
                    WHERE (c.partition_key, c.execution_id) = (e.partition_key, e.execution_id)
                   OFFSET 0) AS core
             WHERE e.route_id = routes.route_id AND e.outcome = 'success'
               AND core.matches AND {within}
               AND NOT EXISTS (  -- it is found once, by its last success
                       SELECT FROM ff.completion_event c
                        WHERE (c.route_id, c.created_at_ms, c.execution_id, c.partition_key)
                            = (e.route_id, e.created_at_ms, e.execution_id, e.partition_key)
                          AND c.outcome = 'success' AND c.event_id > e.event_id){by}) AS e
     WHERE (SELECT mixed FROM mixed)
)"""


def active(within: LiteralString) -> LiteralString:
    """Those that a worker holds. There are few leases: one for each handler that runs."""
    return f""", found AS (
    SELECT e.partition_key, e.execution_id, e.created_at_ms, l.attempt_started_at_ms
      FROM ff.lease l CROSS JOIN LATERAL (
            SELECT e.* FROM ff.exec_core e
             WHERE (e.partition_key, e.execution_id) = (l.partition_key, l.execution_id)
            OFFSET 0) AS e
     WHERE e.route_id IN (SELECT route_id FROM routes) AND {within}
       AND (%(worker)s::text IS NULL OR %(worker)s IN (l.worker_instance_id, l.worker_id))
       AND greatest(e.total_attempt_count, l.attempt_index + 1) >= %(min_attempts)s::integer
       AND (%(flow_id)s::uuid IS NULL OR e.flow_id = %(flow_id)s)
       AND (%(tags)s::text[] IS NULL OR e.tags @> ANY (%(tags)s::text[]::jsonb[]))
       AND (%(reason)s::text IS NULL OR strpos(lower(e.failure_reason), lower(%(reason)s)) > 0)
)"""


def waiting(within: LiteralString, by: LiteralString) -> LiteralString:
    """Those in the queue, and those that are held back."""
    return f"""{_ASKED}, levels AS (       -- the priorities that the queue of each route has
    SELECT routes.route_id, (SELECT max(priority) FROM ff.ready q
                              WHERE q.route_id = routes.route_id) AS priority
      FROM routes
     UNION ALL
    SELECT levels.route_id, (SELECT max(priority) FROM ff.ready q
                              WHERE q.route_id = levels.route_id AND q.priority < levels.priority)
      FROM levels WHERE levels.priority IS NOT NULL
), newest AS MATERIALIZED (  -- of the queue, by its index alone; then the executions of a page
    SELECT e.partition_key, e.execution_id, e.created_at_ms, core.matches
      FROM (SELECT e.* FROM levels CROSS JOIN LATERAL (
                    SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.ready e
                     WHERE e.route_id = levels.route_id AND e.priority = levels.priority
                       AND {within}{by}) AS e{by}) AS e
     CROSS JOIN LATERAL (
            SELECT NOT c.resume_pending AND {_refined("c")} AS matches
              FROM ff.exec_core c
             WHERE (c.partition_key, c.execution_id) = (e.partition_key, e.execution_id)
            OFFSET 0) AS core
), mixed AS (         -- are others among them? Then each has to be looked at
    SELECT count(*) > 0 AS mixed FROM newest WHERE NOT matches
), found AS (
    SELECT partition_key, execution_id, created_at_ms FROM newest
     WHERE NOT (SELECT mixed FROM mixed)
     UNION ALL
    SELECT e.* FROM levels CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms
              FROM ff.ready e CROSS JOIN LATERAL (
                   SELECT NOT c.resume_pending AND {_refined("c")} AS matches
                     FROM ff.exec_core c
                    WHERE (c.partition_key, c.execution_id) = (e.partition_key, e.execution_id)
                   OFFSET 0) AS core
             WHERE e.route_id = levels.route_id AND e.priority = levels.priority
               AND core.matches AND {within}{by}) AS e
     WHERE (SELECT mixed FROM mixed)
     UNION ALL{_exceptional(within, by)}
)"""


def resumable(within: LiteralString, by: LiteralString) -> LiteralString:
    """Those that were suspended and wait for a worker."""
    return f""", found AS (
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
             WHERE e.resume_pending AND e.route_id = routes.route_id
               AND e.eligibility_state = 'eligible_now' AND {_refined("e")}
               AND NOT EXISTS (
                       SELECT FROM ff.lease l
                        WHERE (l.partition_key, l.execution_id) = (e.partition_key, e.execution_id))
               AND {within}{by}) AS e
)"""


def by_tag(within: LiteralString, by: LiteralString) -> LiteralString:
    """Those that have one of the tags."""
    return f""", found AS (
    SELECT DISTINCT e.* FROM unnest(%(tag_keys)s::text[], %(tag_values)s::text[])
                               AS asked (tag_key, tag_value)
     CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms
              FROM ff.exec_tag e JOIN ff.execution x USING (partition_key, execution_id)
             WHERE (e.tag_key, e.tag_value) = (asked.tag_key, asked.tag_value)
               AND x.route_id IN (SELECT route_id FROM routes){_in_state("x")}
               AND {_refined("x")} AND {within}{by}) AS e
)"""


def by_flow(within: LiteralString, by: LiteralString) -> LiteralString:
    """The members of a flow, which all are in its partition."""
    return f""", found AS (
    SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.execution e
     WHERE e.partition_key = %(partition_key)s::smallint AND e.flow_id = %(flow_id)s::uuid
       AND e.route_id IN (SELECT route_id FROM routes){_in_state("e")} AND {_refined("e")}
       AND {within}{by}
)"""


def by_key(within: LiteralString, by: LiteralString) -> LiteralString:
    """The last execution that was submitted with an idempotency key."""
    return f""", found AS (
    SELECT e.partition_key, e.execution_id, e.created_at_ms
      FROM ff.exec_idempotency k JOIN ff.execution e USING (partition_key, execution_id)
     WHERE (k.partition_key, k.namespace, k.idempotency_key)
         = (%(partition_key)s::smallint, %(namespace)s, %(idempotency_key)s)
       AND e.route_id IN (SELECT route_id FROM routes){_in_state("e")} AND {_refined("e")}
       AND {within}{by}
)"""
