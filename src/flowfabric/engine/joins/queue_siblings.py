"""Upstreams that a decided join does not need any more are listed for cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.ids import GroupId
from flowfabric.states import GroupState, SiblingCancelReason

BY: Final = "engine"
"""`cancelled_by` of executions that are cancelled because no join needs them."""

# Members that were skipped, or cancelled from outside, end while members above them still run. A
# member that the engine cancels as not needed has its upstreams looked at when it is cancelled, and
# once more by each join that it loses later: what needed them then may have ended since.
IS_LOSER: Final[LiteralString] = """(
    u.terminal_outcome = 'skipped'
    OR u.terminal_outcome = 'cancelled' AND u.cancelled_by IS DISTINCT FROM 'engine')
"""
"""Has the execution `u` ended in a way that may have left members above it running?"""

HAS_UPSTREAMS: Final[LiteralString] = (
    """EXISTS (
    SELECT FROM (SELECT group_id FROM ff.edge_group
                  WHERE (partition_key, waiter_eid) = (loser.partition_key, loser.execution_id)
                    AND waits_as = 'member' OFFSET 0) AS own
     CROSS JOIN LATERAL (
           SELECT upstream_eid FROM ff.edge
            WHERE (partition_key, group_id) = (loser.partition_key, own.group_id)
              AND edge_state = 'applied' OFFSET 0) AS e
     CROSS JOIN LATERAL (
           SELECT * FROM ff.exec_core
            WHERE (partition_key, execution_id) = (loser.partition_key, e.upstream_eid)
           OFFSET 0) AS u
     WHERE u.lifecycle_phase <> 'terminal' OR """
    + IS_LOSER
    + """)"""
)
"""May a member above the execution `loser` still run?"""

LIST_FOR_CANCEL: Final[LiteralString] = (
    """
-- joins.list_for_cancel
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[], %(reason)s::text[])
        AS named (partition_key, group_id, reason)
), upstream AS (
    SELECT named.partition_key, named.group_id, named.reason, u.execution_id,
           u.lifecycle_phase <> 'terminal' AS runs
      FROM named CROSS JOIN LATERAL (  -- driven by the joins, whatever statistics say
           SELECT e.upstream_eid, e.resolution FROM ff.edge e
            WHERE (e.partition_key, e.group_id) = (named.partition_key, named.group_id)
              AND e.edge_state = 'applied' AND e.resolution <> 'satisfied' OFFSET 0) AS e
     CROSS JOIN LATERAL (
           SELECT * FROM ff.exec_core u
            WHERE (u.partition_key, u.execution_id) = (named.partition_key, e.upstream_eid)
           OFFSET 0) AS u
     WHERE (e.resolution = 'unresolved' AND u.lifecycle_phase <> 'terminal'
            OR named.reason <> 'parent_ended' AND u.terminal_outcome IN ('skipped', 'cancelled'))
), listed AS (        -- upstreams that have not ended, and those that ended before members above
    SELECT partition_key, group_id, reason,
           array_agg(execution_id ORDER BY execution_id) FILTER (WHERE runs) AS members,
           array_agg(execution_id ORDER BY execution_id) FILTER (WHERE NOT runs) AS losers
      FROM upstream loser
     WHERE runs OR """
    + HAS_UPSTREAMS
    + """
     GROUP BY partition_key, group_id, reason
), flagged AS (
    UPDATE ff.edge_group g
       SET cancel_siblings_pending_flag = true, cancel_siblings_reason = r.reason,
           cancel_siblings_pending_members = r.members, cancel_siblings_pending_losers = r.losers
      FROM listed r
     WHERE (g.partition_key, g.group_id) = (r.partition_key, r.group_id)
 RETURNING g.partition_key, g.flow_id, g.group_id
)
INSERT INTO ff.pending_cancel_groups (partition_key, flow_id, group_id, enqueued_at_ms)
SELECT partition_key, flow_id, group_id, ff.now_ms() FROM flagged
    ON CONFLICT DO NOTHING
"""
)


async def queue_siblings(conn: Connection, decided: Sequence[tuple[GroupId, GroupState]]) -> None:
    """List the upstreams of these decided joins that have not ended, or that others serve."""
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
