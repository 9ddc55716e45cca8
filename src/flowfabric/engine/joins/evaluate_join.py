"""Joins are evaluated by their counters, without a new completion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.resolve_edges import Decision
from flowfabric.ids import GroupId

EVALUATE_JOINS: Final[LiteralString] = """
-- joins.evaluate_joins
WITH evaluated AS (   -- the caller has locked the joins
    SELECT g.partition_key, g.group_id,
           ff.group_decision(g.policy_kind, g.k, g.expected_n, g.success_count, g.fail_count,
                             g.skip_count, g.running_count) AS new_state
      FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[])
           AS named (partition_key, group_id)
      JOIN ff.edge_group g USING (partition_key, group_id)
     WHERE g.group_state = 'pending'
), decided AS (
    UPDATE ff.edge_group g SET group_state = evaluated.new_state, fired_at_ms = ff.now_ms()
      FROM evaluated
     WHERE (g.partition_key, g.group_id) = (evaluated.partition_key, evaluated.group_id)
       AND evaluated.new_state <> 'pending'
 RETURNING g.partition_key, g.group_id, g.waiter_eid, g.waits_as, g.policy_kind, g.on_satisfied,
           g.group_state
)
SELECT d.partition_key, d.group_id, d.waiter_eid, d.waits_as, d.on_satisfied,
       d.group_state AS decision,
       CASE WHEN d.policy_kind <> 'all_of' AND d.group_state = 'satisfied' THEN ARRAY(
           SELECT first.upstream_eid
             FROM (SELECT e.upstream_eid, e.data_passing_ref FROM ff.edge e
                    WHERE (e.partition_key, e.group_id) = (d.partition_key, d.group_id)
                      AND e.resolution = 'satisfied'
                    ORDER BY e.resolved_event_id LIMIT 1) AS first
            WHERE first.data_passing_ref <> '') END AS sources,
       d.waits_as = 'member' AND EXISTS (
           SELECT FROM ff.cancel_backlog_member m
            WHERE (m.partition_key, m.execution_id)
                = (d.partition_key, d.waiter_eid)) AS cancel_pending
  FROM decided d
 ORDER BY d.partition_key, d.group_id
"""


async def evaluate_join(conn: Connection, group: GroupId) -> list[Decision]:
    """The decision, if the counters decide the join now; the caller applies it."""
    return await evaluate_joins(conn, [group])


async def evaluate_joins(conn: Connection, groups: Sequence[GroupId]) -> list[Decision]:
    """The decisions of those joins that their counters decide now; the caller applies them."""
    return await fetch_all(
        conn,
        EVALUATE_JOINS,
        Decision,
        partition_key=[group.partition_key for group in groups],
        group_id=[group.uuid for group in groups],
    )
