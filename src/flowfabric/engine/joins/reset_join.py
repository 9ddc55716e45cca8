"""Members of flows that were skipped wait for their upstreams again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, execute, fetch_all
from flowfabric.engine.joins.apply_decisions import apply_decisions
from flowfabric.engine.joins.evaluate_join import evaluate_joins
from flowfabric.engine.joins.pass_to_waiters import Passing, pass_to_waiters
from flowfabric.engine.lifecycle.lock_executions import id_columns
from flowfabric.ids import ExecutionId, member_group_id
from flowfabric.states import GroupState

# A member is skipped only under the lock of its join: while that is held here, none is skipped.
LOCK_JOINS: Final[LiteralString] = """
-- joins.lock_joins: what the members wait for
SELECT g.partition_key, g.waiter_eid
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
  JOIN ff.edge_group g
    ON (g.partition_key, g.waiter_eid) = (named.partition_key, named.execution_id)
   AND g.waits_as = 'member'
 ORDER BY g.partition_key, g.group_id FOR NO KEY UPDATE OF g
"""

# A statement of its own: a member may have been skipped while the one before waited.
LOCK_EDGES: Final[LiteralString] = """
-- joins.lock_joins: the edges of the members that were skipped
WITH skipped AS (
    SELECT m.partition_key, m.execution_id
      FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
           AS named (partition_key, execution_id)
      JOIN ff.exec_core m USING (partition_key, execution_id)
     WHERE m.terminal_outcome = 'skipped'
), locked AS (        -- in one order
    SELECT e.partition_key, g.waiter_eid, e.upstream_eid
      FROM skipped
      JOIN ff.edge_group g
        ON (g.partition_key, g.waiter_eid) = (skipped.partition_key, skipped.execution_id)
       AND g.waits_as = 'member'
      JOIN ff.edge e ON (e.partition_key, e.group_id) = (g.partition_key, g.group_id)
     ORDER BY e.partition_key, e.flow_id, e.edge_id FOR NO KEY UPDATE OF e
)
SELECT skipped.partition_key, skipped.execution_id,
       coalesce(array_agg(locked.upstream_eid) FILTER (WHERE locked.upstream_eid IS NOT NULL),
                '{}') AS upstreams
  FROM skipped LEFT JOIN locked
    ON (locked.partition_key, locked.waiter_eid)
     = (skipped.partition_key, skipped.execution_id)
 GROUP BY skipped.partition_key, skipped.execution_id
"""

# An upstream that has succeeded since is satisfied; the earlier completion of any other does not
# count again.
RESET_JOINS: Final[LiteralString] = """
-- joins.reset_joins
WITH named AS (
    SELECT g.partition_key, g.group_id
      FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
           AS member (partition_key, execution_id)
      JOIN ff.edge_group g
        ON (g.partition_key, g.waiter_eid) = (member.partition_key, member.execution_id)
       AND g.waits_as = 'member'
), upstreams AS (
    SELECT e.partition_key, e.flow_id, e.edge_id, u.terminal_outcome = 'success' AS succeeded,
           coalesce((SELECT max(c.event_id) FROM ff.completion_event c
                      WHERE c.execution_id = u.execution_id
                        AND c.partition_key = u.partition_key), 0) AS last_event_id
      FROM named
      JOIN ff.edge e USING (partition_key, group_id)
      JOIN ff.exec_core u ON (u.partition_key, u.execution_id) = (e.partition_key, e.upstream_eid)
     WHERE e.resolution = 'impossible'
), reset AS (
    UPDATE ff.edge e
       SET resolution = CASE WHEN u.succeeded THEN 'satisfied' ELSE 'unresolved' END,
           resolved_outcome = CASE WHEN u.succeeded THEN 'success' END,
           resolved_at_ms = CASE WHEN u.succeeded THEN ff.now_ms() END,
           resolved_event_id = CASE WHEN u.succeeded THEN u.last_event_id END,
           min_event_id = CASE WHEN u.succeeded THEN e.min_event_id ELSE u.last_event_id END
      FROM upstreams u
     WHERE (e.partition_key, e.flow_id, e.edge_id) = (u.partition_key, u.flow_id, u.edge_id)
 RETURNING e.partition_key, e.group_id, u.succeeded, e.upstream_eid, e.data_passing_ref,
           e.resolved_event_id
), counted AS (
    SELECT named.partition_key, named.group_id,
           (count(*) FILTER (WHERE reset.succeeded))::integer AS succeeded,
           (count(*) FILTER (WHERE NOT reset.succeeded))::integer AS running,
           array_agg(reset.upstream_eid ORDER BY reset.resolved_event_id)
               FILTER (WHERE reset.succeeded AND reset.data_passing_ref <> '') AS sources
      FROM named LEFT JOIN reset USING (partition_key, group_id)
     GROUP BY named.partition_key, named.group_id
), recounted AS (     -- what was satisfied stays; nothing is failed or skipped any more
    UPDATE ff.edge_group g
       SET success_count = g.success_count + counted.succeeded,
           running_count = g.running_count + counted.running,
           fail_count = 0, skip_count = 0, group_state = 'pending', fired_at_ms = NULL
      FROM counted
     WHERE (g.partition_key, g.group_id) = (counted.partition_key, counted.group_id)
 RETURNING g.partition_key, g.waiter_eid, g.policy_kind, counted.sources
)
SELECT partition_key, waiter_eid, sources
  FROM recounted WHERE policy_kind = 'all_of' AND sources IS NOT NULL
"""

# As if the downstreams had been reset after the upstreams were decided.
RESET_BELOW: Final[LiteralString] = """
-- joins.reset_joins: an upstream that was skipped again at once does not count for the others
UPDATE ff.edge e
   SET min_event_id = (SELECT max(c.event_id) FROM ff.completion_event c
                        WHERE c.execution_id = e.upstream_eid
                          AND c.partition_key = e.partition_key)
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS member (partition_key, execution_id)
  JOIN ff.edge_group g
    ON (g.partition_key, g.waiter_eid) = (member.partition_key, member.execution_id)
   AND g.waits_as = 'member'
 WHERE (e.partition_key, e.group_id) = (g.partition_key, g.group_id)
   AND e.resolution = 'unresolved' AND e.upstream_eid = ANY (%(skipped)s::uuid[])
"""


class LockedJoins(msgspec.Struct, frozen=True):
    """The joins of some members, locked; `skipped` are the members whose joins can be reset."""

    skipped: dict[ExecutionId, int]
    """Each with the number of joins that it waits for."""
    upstreams: list[ExecutionId]
    """The executions to lock, together with the members, before a join is reset."""


class _Waiter(msgspec.Struct, frozen=True):
    partition_key: int
    waiter_eid: UUID


class _Skipped(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    upstreams: list[UUID]


class _Passing(msgspec.Struct, frozen=True):
    partition_key: int
    waiter_eid: UUID
    sources: list[UUID]


async def lock_joins(conn: Connection, members: Sequence[ExecutionId]) -> LockedJoins:
    """The joins of these members are locked, and the edges of those that were skipped.

    Needs a transaction that holds the locks of their flows and of no execution.
    """
    waiters = {
        ExecutionId(row.partition_key, row.waiter_eid)
        for row in await fetch_all(conn, LOCK_JOINS, _Waiter, **id_columns(members))
    }
    rows = await fetch_all(conn, LOCK_EDGES, _Skipped, **id_columns(members))
    skipped = {ExecutionId(row.partition_key, row.execution_id): row for row in rows}
    return LockedJoins(
        skipped={member: int(member in waiters) for member in skipped},
        upstreams=[
            ExecutionId(row.partition_key, upstream) for row in rows for upstream in row.upstreams
        ],
    )


async def reset_joins(
    conn: Connection, members: Sequence[ExecutionId]
) -> dict[ExecutionId, GroupState]:
    """The members wait for their upstreams again; those whose join was decided at once, and how.

    An upstream that has succeeded since counts at once. A member that is skipped again at once does
    not count for the other members: they wait for it to run, as they do if they are reset after it.
    The caller holds the locks of `lock_joins` and of its upstreams: one that ends meanwhile waits,
    and its completion finds the edge open.
    """
    passing = await fetch_all(conn, RESET_JOINS, _Passing, **id_columns(members))
    if passing:
        waiters = [ExecutionId(row.partition_key, row.waiter_eid) for row in passing]
        passed = [
            Passing(ExecutionId(row.partition_key, source), member_group_id(waiter), waiter)
            for row, waiter in zip(passing, waiters, strict=True)
            for source in row.sources
        ]
        await pass_to_waiters(conn, passed)
    decisions = await evaluate_joins(conn, [member_group_id(each) for each in members])
    await apply_decisions(conn, decisions)
    skipped = [each.waiter_eid for each in decisions if not each.lets_waiter_run]
    if skipped and len(members) > 1:
        await execute(conn, RESET_BELOW, skipped=skipped, **id_columns(members))
    return {each.waiter: GroupState(each.decision) for each in decisions}
