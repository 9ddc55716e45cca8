"""Upstreams that no join needs any more are cancelled, and what served only them."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.counters import SIBLING_CANCELS, SIBLING_DISPOSITIONS
from flowfabric.db.rows import Connection, Moved, fetch_all, fetch_one
from flowfabric.engine.joins.find_unneeded import find_unneeded
from flowfabric.engine.joins.queue_siblings import BY, HAS_UPSTREAMS
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId
from flowfabric.states import SiblingCancelReason, TerminalOutcome

AT_ONCE: Final = 1024
"""Upstreams of one join that one call cancels at most."""
GROUPS_AT_ONCE: Final = 50
"""Joins that one call works on at most."""

PENDING_SIBLINGS: Final[LiteralString] = """
-- joins.pending_siblings
SELECT count(*) AS moved FROM (SELECT FROM ff.pending_cancel_groups LIMIT 1) AS found
"""

# Sorted before they are locked: a sort above the lock would lock every join that is listed.
PICK: Final[LiteralString] = """
-- joins.cancel_siblings: the joins that were listed first
SELECT g.partition_key, g.flow_id, g.group_id, g.cancel_siblings_reason AS reason,
       coalesce(g.cancel_siblings_pending_members, '{}') AS members,
       g.cancel_siblings_pending_losers IS NOT NULL AS has_losers
  FROM (SELECT * FROM ff.pending_cancel_groups ORDER BY enqueued_at_ms) AS p
 CROSS JOIN LATERAL (  -- driven by the few that are listed
       SELECT * FROM ff.edge_group g
        WHERE (g.partition_key, g.group_id) = (p.partition_key, p.group_id)
          AND g.cancel_siblings_pending_flag
          FOR NO KEY UPDATE SKIP LOCKED) AS g
 LIMIT %(limit)s
"""

# The upstreams of a member that is cancelled here are looked at by a later call, once the cancel is
# committed: of two calls that cancel the two members that one upstream serves, neither sees both.
DRAINED: Final[LiteralString] = (
    """
-- joins.cancel_siblings: cancelled upstreams are not listed any more
WITH listed AS (      -- each with its place in the list of its join
    SELECT g.partition_key, g.group_id, each.execution_id, each.ordinal,
           each.ordinal > %(at_once)s OR coalesce(e.lifecycle_phase <> 'terminal', false) AS stays,
           g.cancel_siblings_reason <> 'parent_ended'
           AND e.terminal_outcome IN ('cancelled', 'skipped') AS lost
      FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[])
           AS named (partition_key, group_id)
      JOIN ff.edge_group g USING (partition_key, group_id)
     CROSS JOIN LATERAL unnest(g.cancel_siblings_pending_members) WITH ORDINALITY
           AS each (execution_id, ordinal)
      LEFT JOIN LATERAL (
           SELECT lifecycle_phase, terminal_outcome FROM ff.exec_core
            WHERE (partition_key, execution_id) = (g.partition_key, each.execution_id)
              AND each.ordinal <= %(at_once)s OFFSET 0) AS e ON true
), left_over AS (     -- upstreams in use, those beyond the limit of one call, and lost ones
    SELECT loser.partition_key, loser.group_id,
           array_agg(loser.execution_id ORDER BY loser.ordinal)
               FILTER (WHERE loser.stays) AS members,
           array_agg(loser.execution_id ORDER BY loser.ordinal)
               FILTER (WHERE NOT loser.stays) AS losers
      FROM listed loser
     WHERE loser.stays OR loser.lost AND """
    + HAS_UPSTREAMS
    + """
     GROUP BY loser.partition_key, loser.group_id
), done AS (
    SELECT g.partition_key, g.group_id, left_over.members, left_over.losers,
           left_over.members IS DISTINCT FROM g.cancel_siblings_pending_members
           OR named.searched AS changed
      FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[], %(searched)s::boolean[])
           AS named (partition_key, group_id, searched)
      JOIN ff.edge_group g USING (partition_key, group_id)
      LEFT JOIN left_over USING (partition_key, group_id)
), cleared AS (
    UPDATE ff.edge_group g
       SET cancel_siblings_pending_members = done.members,
           cancel_siblings_pending_losers
               = nullif(coalesce(g.cancel_siblings_pending_losers, '{}')
                        || coalesce(done.losers, '{}'), '{}'),
           cancel_siblings_pending_flag = done.members IS NOT NULL OR done.losers IS NOT NULL
                                          OR g.cancel_siblings_pending_losers IS NOT NULL
      FROM done
     WHERE (g.partition_key, g.group_id) = (done.partition_key, done.group_id)
 RETURNING g.partition_key, g.flow_id, g.group_id, g.cancel_siblings_pending_flag, done.changed
), unlisted AS (
    DELETE FROM ff.pending_cancel_groups p USING cleared
     WHERE (p.partition_key, p.flow_id, p.group_id)
         = (cleared.partition_key, cleared.flow_id, cleared.group_id)
       AND NOT cleared.cancel_siblings_pending_flag
), postponed AS (     -- a join whose upstreams are in use does not take the place of the others
    UPDATE ff.pending_cancel_groups p SET enqueued_at_ms = ff.now_ms()
      FROM cleared
     WHERE (p.partition_key, p.flow_id, p.group_id)
         = (cleared.partition_key, cleared.flow_id, cleared.group_id)
       AND cleared.cancel_siblings_pending_flag AND NOT cleared.changed
)
SELECT count(*) FILTER (WHERE changed OR NOT cancel_siblings_pending_flag) AS moved,
       count(*) FILTER (WHERE changed AND cancel_siblings_pending_flag) AS unfinished
  FROM cleared
"""
)


class CancelledSiblings(msgspec.Struct, frozen=True):
    """How many joins were worked on, and of how many of those something is left."""

    moved: int
    unfinished: int


class _Group(msgspec.Struct, frozen=True):
    partition_key: int
    flow_id: UUID
    group_id: UUID
    reason: str
    members: list[UUID]
    has_losers: bool


async def pending_siblings(conn: Connection) -> bool:
    """Is a join listed whose upstreams are to be cancelled?"""
    return (await fetch_one(conn, PENDING_SIBLINGS, Moved)).moved > 0


async def cancel_siblings(conn: Connection, limit: int = GROUPS_AT_ONCE) -> int:
    """Cancel the upstreams that at most `limit` joins do not need any more; how many joins.

    Needs a transaction. An upstream that has ended meanwhile stays as it is; of more than 1024 in
    one join the next call cancels the rest. The next call also cancels what served only the
    upstreams that this one cancels. An upstream that another transaction has locked stays listed;
    a join of which every upstream is locked is not counted.
    """
    return (await cancel_batch(conn, limit)).moved


async def cancel_batch(conn: Connection, limit: int = GROUPS_AT_ONCE) -> CancelledSiblings:
    """As `cancel_siblings`, for a caller that goes on until nothing is left."""
    groups = await fetch_all(conn, PICK, _Group, limit=limit)
    if not groups:
        return CancelledSiblings(0, 0)
    found = await find_unneeded(
        conn, [(group.partition_key, group.group_id) for group in groups if group.has_losers]
    )
    for reason in SiblingCancelReason:
        members = [
            ExecutionId(group.partition_key, member)
            for group in groups
            if group.reason == reason
            for member in found.get(group.group_id, group.members)[:AT_ONCE]
        ]
        if members:
            free = await lock_executions(conn, sorted({*members}), pass_over_locked=True)
            cancelled = await terminalize(
                conn, free, outcome=TerminalOutcome.CANCELLED, reason=reason.value, by=BY
            )
            SIBLING_CANCELS.add(reason.value, count=len(free))
            SIBLING_DISPOSITIONS.add("cancelled", count=len(cancelled))
            SIBLING_DISPOSITIONS.add("already_terminal", count=len(free) - len(cancelled))
    return await fetch_one(
        conn,
        DRAINED,
        CancelledSiblings,
        partition_key=[group.partition_key for group in groups],
        group_id=[group.group_id for group in groups],
        searched=[group.has_losers for group in groups],
        at_once=AT_ONCE,
    )
