"""Upstreams that no join needs any more are cancelled."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_all, fetch_one
from flowfabric.engine.joins.queue_siblings import BY
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
       coalesce(g.cancel_siblings_pending_members, '{}') AS members
  FROM (SELECT * FROM ff.pending_cancel_groups ORDER BY enqueued_at_ms) AS p
 CROSS JOIN LATERAL (  -- driven by the few that are listed
       SELECT * FROM ff.edge_group g
        WHERE (g.partition_key, g.group_id) = (p.partition_key, p.group_id)
          AND g.cancel_siblings_pending_flag
          FOR NO KEY UPDATE SKIP LOCKED) AS g
 LIMIT %(limit)s
"""

DRAINED: Final[LiteralString] = """
-- joins.cancel_siblings: cancelled upstreams are not listed any more
WITH done AS (        -- what stays listed: upstreams in use, and those beyond the limit of one call
    SELECT named.partition_key, named.group_id, left_over.members,
           left_over.members IS DISTINCT FROM g.cancel_siblings_pending_members AS changed
      FROM unnest(%(partition_key)s::smallint[], %(group_id)s::uuid[])
           AS named (partition_key, group_id)
      JOIN ff.edge_group g USING (partition_key, group_id)
     CROSS JOIN LATERAL (
           SELECT array_agg(listed.member ORDER BY listed.ordinal) AS members
             FROM unnest(g.cancel_siblings_pending_members) WITH ORDINALITY
                  AS listed (member, ordinal)
            WHERE listed.ordinal > %(at_once)s
               OR EXISTS (SELECT FROM ff.exec_core e
                           WHERE (e.partition_key, e.execution_id)
                               = (g.partition_key, listed.member)
                             AND e.lifecycle_phase <> 'terminal')) AS left_over
), cleared AS (
    UPDATE ff.edge_group g
       SET cancel_siblings_pending_members = done.members,
           cancel_siblings_pending_flag = done.members IS NOT NULL
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
SELECT count(*) AS moved FROM cleared WHERE changed OR NOT cancel_siblings_pending_flag
"""


class _Group(msgspec.Struct, frozen=True):
    partition_key: int
    flow_id: UUID
    group_id: UUID
    reason: str
    members: list[UUID]


async def pending_siblings(conn: Connection) -> bool:
    """Is a join listed whose upstreams are to be cancelled?"""
    return (await fetch_one(conn, PENDING_SIBLINGS, Moved)).moved > 0


async def cancel_siblings(conn: Connection, limit: int = GROUPS_AT_ONCE) -> int:
    """Cancel the upstreams that at most `limit` joins do not need any more; how many joins.

    Needs a transaction. An upstream that has ended meanwhile stays as it is; of more than 1024 in
    one join the next call cancels the rest. An upstream that another transaction has locked stays
    listed; a join of which every upstream is locked is not counted.
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
                pass_over_locked=True,
            )
    drained = await fetch_one(
        conn,
        DRAINED,
        Moved,
        partition_key=[group.partition_key for group in groups],
        group_id=[group.group_id for group in groups],
        at_once=AT_ONCE,
    )
    return drained.moved
