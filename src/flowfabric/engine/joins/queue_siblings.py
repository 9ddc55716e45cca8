"""Upstreams that are not needed any more are listed for cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.ids import ExecutionId
from flowfabric.states import GroupState, SiblingCancelReason

BY: Final = "engine"

QUEUE_SIBLINGS: Final[LiteralString] = """
-- joins.queue_siblings
WITH fired AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(downstream_eid)s::uuid[],
                         %(reason)s::text[]) AS fired (partition_key, downstream_eid, reason)
), left_running AS (  -- upstreams that have not ended
    SELECT fired.partition_key, fired.downstream_eid, fired.reason,
           array_agg(DISTINCT e.upstream_eid ORDER BY e.upstream_eid) AS members
      FROM fired
      JOIN ff.edge e USING (partition_key, downstream_eid)
      JOIN ff.exec_core u ON (u.partition_key, u.execution_id) = (e.partition_key, e.upstream_eid)
     WHERE e.edge_state = 'applied' AND e.resolution = 'unresolved'
       AND u.lifecycle_phase <> 'terminal'
     GROUP BY fired.partition_key, fired.downstream_eid, fired.reason
), flagged AS (
    UPDATE ff.edge_group g
       SET cancel_siblings_pending_flag = true, cancel_siblings_reason = l.reason,
           cancel_siblings_pending_members = l.members
      FROM left_running l
     WHERE (g.partition_key, g.downstream_eid) = (l.partition_key, l.downstream_eid)
 RETURNING g.partition_key, g.flow_id, g.downstream_eid
)
INSERT INTO ff.pending_cancel_groups (partition_key, flow_id, downstream_eid, enqueued_at_ms)
SELECT partition_key, flow_id, downstream_eid, ff.now_ms() FROM flagged
    ON CONFLICT DO NOTHING
"""


async def queue_siblings(conn: Connection, fired: Sequence[tuple[ExecutionId, GroupState]]) -> None:
    """List the upstreams of these decided groups that have not ended."""
    reason = {
        GroupState.SATISFIED: SiblingCancelReason.SIBLING_QUORUM_SATISFIED,
        GroupState.IMPOSSIBLE: SiblingCancelReason.SIBLING_QUORUM_IMPOSSIBLE,
    }
    await list_for_cancel(conn, [(group, reason[state]) for group, state in fired])


async def list_for_cancel(
    conn: Connection, groups: Sequence[tuple[ExecutionId, SiblingCancelReason]]
) -> None:
    """List the upstreams of these groups that have not ended, and why they are to be cancelled."""
    if not groups:
        return
    await execute(
        conn,
        QUEUE_SIBLINGS,
        partition_key=[group.partition_key for group, _ in groups],
        downstream_eid=[group.uuid for group, _ in groups],
        reason=[reason.value for _, reason in groups],
    )
