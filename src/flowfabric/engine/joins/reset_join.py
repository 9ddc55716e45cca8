"""Members wait for their upstreams again; joins that are pending count upstreams that run again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all
from flowfabric.engine.joins.apply_decisions import apply_decisions
from flowfabric.engine.joins.evaluate_join import evaluate_joins
from flowfabric.engine.joins.member_joins import group_columns
from flowfabric.engine.joins.pass_to_waiters import Passing, pass_to_waiters
from flowfabric.engine.lifecycle.lock_executions import id_columns
from flowfabric.ids import ExecutionId, member_group_id
from flowfabric.states import GroupState

# An upstream that has succeeded since is satisfied. The earlier completion of an upstream that runs
# again does not count any more. One that has failed stays failed, unless the member waits for it
# even so. The `+ 0` keeps the plan to the events of one upstream.
RESET_EDGES: Final[LiteralString] = """
-- joins.reset_joins: the edges
WITH upstreams AS MATERIALIZED (
    SELECT e.partition_key, e.flow_id, e.edge_id, u.terminal_outcome = 'success' AS succeeded,
           coalesce((SELECT max(c.event_id + 0) FROM ff.completion_event c
                      WHERE (c.route_id, c.created_at_ms, c.execution_id, c.partition_key)
                          = (u.route_id, u.created_at_ms, u.execution_id, u.partition_key)), 0)
               AS last_event_id
      FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[],
                  %(even_failed)s::boolean[]) AS named (partition_key, group_id, even_failed)
     CROSS JOIN LATERAL (  -- driven by the joins, whatever statistics say
           SELECT * FROM ff.edge e
            WHERE (e.partition_key, e.group_id) = (named.partition_key, named.group_id)
           OFFSET 0) AS e
      JOIN ff.exec_core u ON (u.partition_key, u.execution_id) = (e.partition_key, e.upstream_eid)
     WHERE e.edge_state = 'applied'
       AND (u.lifecycle_phase <> 'terminal' AND e.resolution <> 'satisfied'
            OR e.resolution = 'impossible'
               AND (u.terminal_outcome = 'success' OR named.even_failed))
)
UPDATE ff.edge e
   SET resolution = CASE WHEN u.succeeded THEN 'satisfied' ELSE 'unresolved' END,
       resolved_outcome = CASE WHEN u.succeeded THEN 'success' END,
       resolved_at_ms = CASE WHEN u.succeeded THEN ff.now_ms() END,
       resolved_event_id = CASE WHEN u.succeeded THEN u.last_event_id END,
       min_event_id = CASE WHEN u.succeeded THEN e.min_event_id ELSE u.last_event_id END
  FROM upstreams u
 WHERE (e.partition_key, e.flow_id, e.edge_id) = (u.partition_key, u.flow_id, u.edge_id)
"""

# Upstreams that were listed because the join was decided are needed again.
RECOUNT: Final[LiteralString] = """
-- joins.reset_joins: the counters, from the edges; nothing is cancelled for the joins
WITH counted AS MATERIALIZED (
    SELECT g.partition_key, g.flow_id, g.group_id,
           edges.succeeded, edges.skipped, edges.failed, edges.running
      FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[])
           AS named (partition_key, group_id)
      JOIN ff.edge_group g USING (partition_key, group_id)
     CROSS JOIN LATERAL (
           SELECT (count(*) FILTER (WHERE e.resolution = 'satisfied'))::integer AS succeeded,
                  (count(*) FILTER (WHERE e.resolved_outcome = 'skipped'))::integer AS skipped,
                  (count(*) FILTER (WHERE e.resolution = 'impossible'
                                      AND e.resolved_outcome <> 'skipped'))::integer AS failed,
                  (count(*) FILTER (WHERE e.resolution = 'unresolved'))::integer AS running
             FROM ff.edge e
            WHERE (e.partition_key, e.group_id) = (g.partition_key, g.group_id)
              AND e.edge_state = 'applied') AS edges
), unlisted AS (
    DELETE FROM ff.pending_cancel_groups p USING counted
     WHERE (p.partition_key, p.flow_id, p.group_id)
         = (counted.partition_key, counted.flow_id, counted.group_id)
)
UPDATE ff.edge_group g
   SET success_count = counted.succeeded, skip_count = counted.skipped,
       fail_count = counted.failed, running_count = counted.running,
       group_state = 'pending', fired_at_ms = NULL, cancel_siblings_pending_flag = false,
       cancel_siblings_pending_members = NULL, cancel_siblings_pending_losers = NULL
  FROM counted
 WHERE (g.partition_key, g.group_id) = (counted.partition_key, counted.group_id)
"""

# As if those members had been reset after their upstreams were decided.
RESET_BELOW: Final[LiteralString] = """
-- joins.reset_joins: an upstream that was skipped again at once does not count for the others
UPDATE ff.edge e
   SET min_event_id = (SELECT max(c.event_id + 0)
                         FROM ff.exec_core u JOIN ff.completion_event c
                           ON (c.route_id, c.created_at_ms, c.execution_id, c.partition_key)
                            = (u.route_id, u.created_at_ms, u.execution_id, u.partition_key)
                        WHERE (u.partition_key, u.execution_id)
                            = (e.partition_key, e.upstream_eid))
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS member (partition_key, execution_id)
 CROSS JOIN LATERAL (
       SELECT g.partition_key, g.group_id FROM ff.edge_group g
        WHERE (g.partition_key, g.waiter_eid) = (member.partition_key, member.execution_id)
          AND g.waits_as = 'member' OFFSET 0) AS g
 WHERE (e.partition_key, e.group_id) = (g.partition_key, g.group_id)
   AND e.resolution = 'unresolved' AND e.upstream_eid = ANY (%(skipped)s::uuid[])
"""

# Of an all-of every result that there is. Of any other join the result of the success that decided
# it, for a member that had ended before that and was not given the result.
SOURCES: Final[LiteralString] = """
-- joins.pass_again: results that members are given
SELECT named.partition_key, named.execution_id AS waiter_eid, passing.upstream_eid
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[], %(group_id)s::uuid[])
       AS named (partition_key, execution_id, group_id)
 CROSS JOIN LATERAL (  -- driven by the members, whatever statistics say
       SELECT m.total_attempt_count FROM ff.exec_core m
        WHERE (m.partition_key, m.execution_id) = (named.partition_key, named.execution_id)
       OFFSET 0) AS m
 CROSS JOIN LATERAL (
       SELECT g.policy_kind, g.group_state, g.k FROM ff.edge_group g
        WHERE (g.partition_key, g.group_id) = (named.partition_key, named.group_id)
       OFFSET 0) AS g
 CROSS JOIN LATERAL (
       SELECT e.upstream_eid, e.resolved_event_id, e.data_passing_ref,
              row_number() OVER (ORDER BY e.resolved_event_id) AS nth
         FROM ff.edge e
        WHERE (e.partition_key, e.group_id) = (named.partition_key, named.group_id)
          AND e.resolution = 'satisfied') AS passing
 WHERE passing.data_passing_ref <> '' AND m.total_attempt_count = 0
   AND (g.policy_kind = 'all_of'
        OR g.group_state = 'satisfied' AND passing.nth = coalesce(g.k, 1))
 ORDER BY named.partition_key, named.execution_id, passing.resolved_event_id
"""

REOPEN_EDGES: Final[LiteralString] = """
-- joins.reopen_edges: an upstream that runs again counts as running for what still waits for it
WITH upstreams AS MATERIALIZED (
    SELECT named.partition_key, named.execution_id,
           (SELECT max(c.event_id + 0)
              FROM ff.exec_core u JOIN ff.completion_event c
                ON (c.route_id, c.created_at_ms, c.execution_id, c.partition_key)
                 = (u.route_id, u.created_at_ms, u.execution_id, u.partition_key)
             WHERE (u.partition_key, u.execution_id)
                 = (named.partition_key, named.execution_id)) AS last_event_id
      FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
           AS named (partition_key, execution_id)
), open_edge AS MATERIALIZED (
    SELECT e.partition_key, e.flow_id, e.edge_id, e.resolution, e.resolved_outcome,
           u.last_event_id
      FROM upstreams u
     CROSS JOIN LATERAL (  -- driven by the upstreams, whatever statistics say
           SELECT * FROM ff.edge e
            WHERE (e.partition_key, e.upstream_eid) = (u.partition_key, u.execution_id)
           OFFSET 0) AS e
     CROSS JOIN LATERAL (
           SELECT g.waits_as, g.group_state FROM ff.edge_group g
            WHERE (g.partition_key, g.group_id) = (e.partition_key, e.group_id)
           OFFSET 0) AS g
     WHERE e.edge_state = 'applied' AND e.resolution <> 'satisfied'
       AND g.waits_as = 'member' AND g.group_state = 'pending'
), reopened AS (
    UPDATE ff.edge e
       SET resolution = 'unresolved', resolved_outcome = NULL, resolved_at_ms = NULL,
           resolved_event_id = NULL, min_event_id = coalesce(o.last_event_id, e.min_event_id)
      FROM open_edge o
     WHERE (e.partition_key, e.flow_id, e.edge_id) = (o.partition_key, o.flow_id, o.edge_id)
 RETURNING e.partition_key, e.group_id, o.resolution, o.resolved_outcome
), counted AS (
    SELECT partition_key, group_id, count(*)::integer AS running,
           (count(*) FILTER (WHERE resolved_outcome = 'skipped'))::integer AS skipped,
           (count(*) FILTER (WHERE resolved_outcome <> 'skipped'))::integer AS failed
      FROM reopened WHERE resolution = 'impossible' GROUP BY partition_key, group_id
)
UPDATE ff.edge_group g
   SET running_count = g.running_count + counted.running,
       skip_count = g.skip_count - counted.skipped, fail_count = g.fail_count - counted.failed
  FROM counted
 WHERE (g.partition_key, g.group_id) = (counted.partition_key, counted.group_id)
"""


class _Source(msgspec.Struct, frozen=True):
    partition_key: int
    waiter_eid: UUID
    upstream_eid: UUID


async def reset_joins(
    conn: Connection, members: Sequence[ExecutionId], *, even_failed: Collection[ExecutionId] = ()
) -> dict[ExecutionId, GroupState]:
    """The members wait for their upstreams again; those whose join was decided at once, and how.

    An upstream that has succeeded since counts at once, and one that runs again counts as running.
    The members in `even_failed` wait also for upstreams that have failed, until those run again.
    The caller holds the locks of `lock_joins` and has restarted the members.
    """
    if not members:
        return {}
    groups = group_columns(members)
    await execute(
        conn, RESET_EDGES, even_failed=[each in even_failed for each in members], **groups
    )
    await execute(conn, RECOUNT, **groups)
    await pass_again(conn, members)
    decisions = await evaluate_joins(conn, [member_group_id(each) for each in members])
    await apply_decisions(conn, decisions)
    skipped = [each.waiter_eid for each in decisions if not each.lets_waiter_run]
    if skipped and even_failed:
        await execute(conn, RESET_BELOW, skipped=skipped, **id_columns([*even_failed]))
    return {each.waiter: GroupState(each.decision) for each in decisions}


async def pass_again(conn: Connection, members: Sequence[ExecutionId]) -> None:
    """Members that never ran are given the results that came after they had ended."""
    if not members:
        return
    sources = await fetch_all(
        conn, SOURCES, _Source, **(group_columns(members) | id_columns(members))
    )
    if sources:
        waiters = [ExecutionId(row.partition_key, row.waiter_eid) for row in sources]
        passed = [
            Passing(
                ExecutionId(row.partition_key, row.upstream_eid), member_group_id(waiter), waiter
            )
            for row, waiter in zip(sources, waiters, strict=True)
        ]
        await pass_to_waiters(conn, passed)


async def reopen_edges(conn: Connection, restarted: Sequence[ExecutionId]) -> None:
    """What still waits for these members waits for their next end, whatever the last one was.

    The caller holds the locks of `lock_joins` and has restarted the members.
    """
    if restarted:
        await execute(conn, REOPEN_EDGES, **id_columns(restarted))
