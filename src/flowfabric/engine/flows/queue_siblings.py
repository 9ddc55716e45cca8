"""Upstreams that are not needed any more are listed for their cancel, and then cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, execute, fetch_all, fetch_one
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId
from flowfabric.states import GroupState, SiblingCancelReason, TerminalOutcome

BY: Final = "engine"
AT_ONCE: Final = 1024
GROUPS_AT_ONCE: Final = 50

QUEUE_SIBLINGS: Final[LiteralString] = """
-- flows.queue_siblings
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

PENDING_SIBLINGS: Final[LiteralString] = """
-- flows.pending_siblings
SELECT count(*) AS moved FROM (SELECT FROM ff.pending_cancel_groups LIMIT 1) AS found
"""

PICK: Final[LiteralString] = """
-- flows.cancel_siblings: the groups that wait longest
SELECT g.partition_key, g.flow_id, g.downstream_eid, g.cancel_siblings_reason AS reason,
       coalesce(g.cancel_siblings_pending_members, '{}') AS members
  FROM ff.pending_cancel_groups p CROSS JOIN LATERAL (  -- from the few that are listed
       SELECT * FROM ff.edge_group g
        WHERE (g.partition_key, g.downstream_eid) = (p.partition_key, p.downstream_eid)
          AND g.cancel_siblings_pending_flag
          FOR NO KEY UPDATE SKIP LOCKED) AS g
 ORDER BY p.enqueued_at_ms LIMIT %(limit)s
"""

DRAINED: Final[LiteralString] = """
-- flows.cancel_siblings: what was drained
WITH done AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(downstream_eid)s::uuid[])
        AS done (partition_key, downstream_eid)
), cleared AS (       -- whatever was beyond the limit of one turn stays listed
    UPDATE ff.edge_group g
       SET cancel_siblings_pending_members =
               nullif(g.cancel_siblings_pending_members[%(from)s:], '{}'),
           cancel_siblings_pending_flag =
               coalesce(cardinality(g.cancel_siblings_pending_members), 0) >= %(from)s
      FROM done
     WHERE (g.partition_key, g.downstream_eid) = (done.partition_key, done.downstream_eid)
 RETURNING g.partition_key, g.flow_id, g.downstream_eid, g.cancel_siblings_pending_flag
)
DELETE FROM ff.pending_cancel_groups p USING cleared
 WHERE (p.partition_key, p.flow_id, p.downstream_eid)
     = (cleared.partition_key, cleared.flow_id, cleared.downstream_eid)
   AND NOT cleared.cancel_siblings_pending_flag
"""

RECONCILE_SIBLINGS: Final[LiteralString] = """
-- flows.reconcile_siblings
WITH idle AS (        -- nothing is owed: the group is gone, or its flag is down
    SELECT p.partition_key, p.flow_id, p.downstream_eid FROM ff.pending_cancel_groups p
     WHERE NOT EXISTS (SELECT FROM ff.edge_group g
                        WHERE (g.partition_key, g.downstream_eid)
                            = (p.partition_key, p.downstream_eid)
                          AND g.cancel_siblings_pending_flag)
     LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), dropped AS (
    DELETE FROM ff.pending_cancel_groups p USING idle
     WHERE (p.partition_key, p.flow_id, p.downstream_eid)
         = (idle.partition_key, idle.flow_id, idle.downstream_eid)
 RETURNING 1
)
SELECT count(*) AS moved FROM dropped
"""


class _Group(msgspec.Struct, frozen=True):
    partition_key: int
    flow_id: UUID
    downstream_eid: UUID
    reason: str
    members: list[UUID]


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


async def pending_siblings(conn: Connection) -> bool:
    """Is anybody listed?"""
    return (await fetch_one(conn, PENDING_SIBLINGS, Moved)).moved > 0


async def cancel_siblings(conn: Connection, limit: int = GROUPS_AT_ONCE) -> int:
    """Cancel the upstreams that at most `limit` groups do not need any more; how many groups.

    Needs a transaction. One that has ended meanwhile stays as it is; of more than 1024 in a group
    the rest has the next turn.
    """
    groups = await fetch_all(conn, PICK, _Group, limit=limit)
    if not groups:
        return 0
    for reason in SiblingCancelReason:
        members = {
            ExecutionId(group.partition_key, member)
            for group in groups
            if group.reason == reason
            for member in group.members[:AT_ONCE]
        }
        if members:
            await terminalize(
                conn,
                sorted(members),
                outcome=TerminalOutcome.CANCELLED,
                reason=reason.value,
                by=BY,
            )
    await execute(
        conn,
        DRAINED,
        partition_key=[group.partition_key for group in groups],
        downstream_eid=[group.downstream_eid for group in groups],
        **{"from": AT_ONCE + 1},
    )
    return len(groups)


async def reconcile_siblings(conn: Connection, limit: int = GROUPS_AT_ONCE) -> int:
    """Drop at most `limit` listings of groups that owe nothing."""
    return (await fetch_one(conn, RECONCILE_SIBLINGS, Moved, limit=limit)).moved
