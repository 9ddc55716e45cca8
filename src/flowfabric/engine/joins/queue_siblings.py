"""Upstreams that a decided join does not need any more are listed for cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.ids import GroupId
from flowfabric.states import GroupState, SiblingCancelReason

BY: Final = "engine"
"""`cancelled_by` of executions that are cancelled because no join needs them."""

LIST_FOR_CANCEL: Final[LiteralString] = """
-- joins.list_for_cancel
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[], %(reason)s::text[])
        AS named (partition_key, group_id, reason)
), still_running AS ( -- upstreams that have not ended
    SELECT named.partition_key, named.group_id, named.reason,
           array_agg(DISTINCT e.upstream_eid ORDER BY e.upstream_eid) AS members
      FROM named
      JOIN ff.edge e USING (partition_key, group_id)
      JOIN ff.exec_core u ON (u.partition_key, u.execution_id) = (e.partition_key, e.upstream_eid)
     WHERE e.edge_state = 'applied' AND e.resolution = 'unresolved'
       AND u.lifecycle_phase <> 'terminal'
     GROUP BY named.partition_key, named.group_id, named.reason
), flagged AS (
    UPDATE ff.edge_group g
       SET cancel_siblings_pending_flag = true, cancel_siblings_reason = r.reason,
           cancel_siblings_pending_members = r.members
      FROM still_running r
     WHERE (g.partition_key, g.group_id) = (r.partition_key, r.group_id)
 RETURNING g.partition_key, g.flow_id, g.group_id
)
INSERT INTO ff.pending_cancel_groups (partition_key, flow_id, group_id, enqueued_at_ms)
SELECT partition_key, flow_id, group_id, ff.now_ms() FROM flagged
    ON CONFLICT DO NOTHING
"""


async def queue_siblings(conn: Connection, decided: Sequence[tuple[GroupId, GroupState]]) -> None:
    """List the upstreams of these decided joins that have not ended."""
    reason = {
        GroupState.SATISFIED: SiblingCancelReason.SIBLING_QUORUM_SATISFIED,
        GroupState.IMPOSSIBLE: SiblingCancelReason.SIBLING_QUORUM_IMPOSSIBLE,
    }
    await list_for_cancel(conn, [(group, reason[state]) for group, state in decided])


async def list_for_cancel(
    conn: Connection, groups: Sequence[tuple[GroupId, SiblingCancelReason]]
) -> None:
    """List the upstreams of these joins that have not ended, with the reason of the cancel."""
    if not groups:
        return
    await execute(
        conn,
        LIST_FOR_CANCEL,
        partition_key=[group.partition_key for group, _ in groups],
        group_id=[group.uuid for group, _ in groups],
        reason=[reason.value for _, reason in groups],
    )
