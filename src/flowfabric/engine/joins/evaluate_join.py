"""A join is evaluated by its counters, without a new completion."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.resolve_edges import Decision
from flowfabric.ids import GroupId

EVALUATE_JOIN: Final[LiteralString] = """
-- joins.evaluate_join
WITH evaluated AS (
    SELECT partition_key, group_id,
           ff.group_decision(policy_kind, k, expected_n, success_count, fail_count, skip_count,
                             running_count) AS new_state
      FROM ff.edge_group
     WHERE (partition_key, group_id) = (%(partition_key)s, %(group_id)s)
       AND group_state = 'pending'
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
"""


async def evaluate_join(conn: Connection, group: GroupId) -> list[Decision]:
    """The decision, if the counters decide the join now; the caller applies it."""
    return await fetch_all(
        conn,
        EVALUATE_JOIN,
        Decision,
        partition_key=group.partition_key,
        group_id=group.uuid,
    )
