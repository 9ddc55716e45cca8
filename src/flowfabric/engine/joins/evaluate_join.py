"""A group is looked at again, without an end that it heard of."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.resolve_edges import Decision
from flowfabric.ids import ExecutionId

EVALUATE_JOIN: Final[LiteralString] = """
-- joins.evaluate_join
WITH judged AS (
    SELECT partition_key, downstream_eid, policy_kind,
           ff.group_decision(policy_kind, k, expected_n, success_count, fail_count, skip_count,
                             running_count) AS new_state
      FROM ff.edge_group
     WHERE (partition_key, downstream_eid) = (%(partition_key)s, %(downstream)s)
       AND group_state = 'pending'
), decided AS (
    UPDATE ff.edge_group g SET group_state = judged.new_state, fired_at_ms = ff.now_ms()
      FROM judged
     WHERE (g.partition_key, g.downstream_eid) = (judged.partition_key, judged.downstream_eid)
       AND judged.new_state <> 'pending'
 RETURNING g.partition_key, g.downstream_eid, g.policy_kind, g.on_satisfied, g.wakes, g.group_state
)
SELECT d.partition_key, d.downstream_eid, d.wakes, d.on_satisfied, d.group_state AS decision,
       CASE WHEN d.policy_kind <> 'all_of' AND d.group_state = 'satisfied' THEN ARRAY(
           SELECT first.upstream_eid
             FROM (SELECT e.upstream_eid, e.data_passing_ref FROM ff.edge e
                    WHERE (e.partition_key, e.downstream_eid) = (d.partition_key, d.downstream_eid)
                      AND e.resolution = 'satisfied'
                    ORDER BY e.resolved_event_id LIMIT 1) AS first
            WHERE first.data_passing_ref <> '') END AS sources,
       EXISTS (SELECT FROM ff.cancel_backlog_member m
                WHERE (m.partition_key, m.execution_id)
                    = (d.partition_key, d.downstream_eid)) AS owed
  FROM decided d
"""


async def evaluate_join(conn: Connection, downstream: ExecutionId) -> list[Decision]:
    """What the group came to, if its edges decide it; the caller acts on it."""
    return await fetch_all(
        conn,
        EVALUATE_JOIN,
        Decision,
        partition_key=downstream.partition_key,
        downstream=downstream.uuid,
    )
