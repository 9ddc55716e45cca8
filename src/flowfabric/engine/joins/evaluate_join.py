"""Joins are evaluated again, without a completion that was dispatched to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.joins.resolve_edges import Decision
from flowfabric.ids import ExecutionId

EVALUATE_JOIN: Final[LiteralString] = """
-- joins.evaluate_joins
WITH evaluated AS (   -- the caller holds the locks of the groups
    SELECT g.partition_key, g.downstream_eid,
           ff.group_decision(g.policy_kind, g.k, g.expected_n, g.success_count, g.fail_count,
                             g.skip_count, g.running_count) AS new_state
      FROM unnest(%(partition_key)s::smallint[], %(downstream)s::uuid[])
           AS named (partition_key, downstream_eid)
      JOIN ff.edge_group g USING (partition_key, downstream_eid)
     WHERE g.group_state = 'pending'
), decided AS (
    UPDATE ff.edge_group g SET group_state = evaluated.new_state, fired_at_ms = ff.now_ms()
      FROM evaluated
     WHERE (g.partition_key, g.downstream_eid)
         = (evaluated.partition_key, evaluated.downstream_eid)
       AND evaluated.new_state <> 'pending'
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
 ORDER BY d.partition_key, d.downstream_eid
"""


async def evaluate_join(conn: Connection, downstream: ExecutionId) -> list[Decision]:
    """The decision of one join, if its edges decide it; the caller applies it."""
    return await evaluate_joins(conn, [downstream])


async def evaluate_joins(conn: Connection, downstreams: Sequence[ExecutionId]) -> list[Decision]:
    """The decisions of those joins that their edges decide; the caller applies them."""
    return await fetch_all(
        conn,
        EVALUATE_JOIN,
        Decision,
        partition_key=[each.partition_key for each in downstreams],
        downstream=[each.uuid for each in downstreams],
    )
