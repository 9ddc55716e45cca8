"""Completions resolve_edges the edges that lead from them, and decide joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId

RESOLVE: Final[LiteralString] = """
-- joins.resolve_edges
WITH told AS (
    SELECT * FROM unnest(%(event_id)s::bigint[], %(partition_key)s::smallint[],
                         %(execution_id)s::uuid[], %(outcome)s::text[])
        AS told (event_id, partition_key, upstream_eid, outcome)
), meant AS MATERIALIZED (  -- each edge with the first end that counts for it
    SELECT DISTINCT ON (e.partition_key, e.flow_id, e.edge_id)
           e.partition_key, e.flow_id, e.edge_id, told.event_id, told.outcome
      FROM told CROSS JOIN LATERAL (  -- from the ends, also where no edge is thought to be
           SELECT * FROM ff.edge e
            WHERE (e.partition_key, e.upstream_eid) = (told.partition_key, told.upstream_eid)
              AND e.edge_state = 'applied' AND e.resolution = 'unresolved'
              AND told.event_id > e.min_event_id
              AND (%(only_edge)s::uuid IS NULL OR e.edge_id = %(only_edge)s)
           OFFSET 0) AS e
     ORDER BY e.partition_key, e.flow_id, e.edge_id, told.event_id
), resolved AS (
    UPDATE ff.edge e
       SET resolution = CASE meant.outcome WHEN 'success' THEN 'satisfied' ELSE 'impossible' END,
           resolved_outcome = meant.outcome, resolved_at_ms = ff.now_ms(),
           resolved_event_id = meant.event_id
      FROM meant
     WHERE (e.partition_key, e.flow_id, e.edge_id)
         = (meant.partition_key, meant.flow_id, meant.edge_id) AND e.resolution = 'unresolved'
 RETURNING e.partition_key, e.downstream_eid, e.upstream_eid, e.data_passing_ref, meant.outcome,
           meant.event_id
), counted AS (
    SELECT partition_key, downstream_eid,
           (count(*) FILTER (WHERE outcome = 'success'))::integer AS succeeded,
           (count(*) FILTER (WHERE outcome = 'skipped'))::integer AS skipped,
           (count(*) FILTER (WHERE outcome NOT IN ('success', 'skipped')))::integer AS failed,
           count(*)::integer AS heard
      FROM resolved GROUP BY partition_key, downstream_eid
), judged AS (        -- the groups as they will be; they are locked since they were picked
    SELECT g.partition_key, g.downstream_eid, g.group_state AS old_state, g.success_count AS before,
           counted.succeeded, counted.skipped, counted.failed, counted.heard,
           CASE WHEN g.group_state <> 'pending' THEN g.group_state
                WHEN NOT %(decides)s THEN 'pending'
                ELSE ff.group_decision(
                         g.policy_kind, g.k, g.expected_n, g.success_count + counted.succeeded,
                         g.fail_count + counted.failed, g.skip_count + counted.skipped,
                         g.running_count - counted.heard) END AS new_state
      FROM counted JOIN ff.edge_group g USING (partition_key, downstream_eid)
), decided AS (
    UPDATE ff.edge_group g
       SET success_count = g.success_count + judged.succeeded,
           fail_count = g.fail_count + judged.failed, skip_count = g.skip_count + judged.skipped,
           running_count = g.running_count - judged.heard, group_state = judged.new_state,
           fired_at_ms = CASE WHEN judged.new_state = 'pending' THEN NULL
                              ELSE coalesce(g.fired_at_ms, ff.now_ms()) END
      FROM judged
     WHERE (g.partition_key, g.downstream_eid) = (judged.partition_key, judged.downstream_eid)
 RETURNING g.partition_key, g.downstream_eid, g.policy_kind, g.k, g.on_satisfied, g.wakes,
           judged.old_state, judged.new_state, judged.before
), passing AS (       -- the few successes whose result goes on, each with its place in its group
    SELECT r.partition_key, r.downstream_eid, r.upstream_eid, r.event_id,
           (SELECT count(*) FROM resolved other
             WHERE (other.partition_key, other.downstream_eid) = (r.partition_key, r.downstream_eid)
               AND other.outcome = 'success' AND other.event_id <= r.event_id) AS nth
      FROM resolved r WHERE r.data_passing_ref <> '' AND r.outcome = 'success'
), fed AS (           -- of an all-of every one, else the success that decides
    SELECT decided.partition_key, decided.downstream_eid,
           array_agg(passing.upstream_eid ORDER BY passing.event_id) AS sources
      FROM passing JOIN decided USING (partition_key, downstream_eid)
     WHERE decided.old_state = 'pending'
       AND (decided.policy_kind = 'all_of'
            OR %(decides)s AND decided.new_state = 'satisfied' AND decided.before + passing.nth
             = CASE decided.policy_kind WHEN 'any_of' THEN 1 ELSE decided.k END)
     GROUP BY decided.partition_key, decided.downstream_eid
), marked AS (
    UPDATE ff.completion_event c SET dispatched_at_ms = ff.now_ms()
      FROM told
     WHERE (c.event_id, c.partition_key) = (told.event_id, told.partition_key)
       AND %(only_edge)s::uuid IS NULL
)
SELECT decided.partition_key, decided.downstream_eid, decided.wakes, decided.on_satisfied,
       decided.new_state AS decision, fed.sources,
       EXISTS (SELECT FROM ff.cancel_backlog_member m
                WHERE (m.partition_key, m.execution_id)
                    = (decided.partition_key, decided.downstream_eid)) AS owed
  FROM decided LEFT JOIN fed USING (partition_key, downstream_eid)
 WHERE decided.old_state = 'pending' AND (decided.new_state <> 'pending' OR fed.sources IS NOT NULL)
 ORDER BY decided.partition_key, decided.downstream_eid
"""


class MemberCompletion(msgspec.Struct, frozen=True):
    """The end of a member, as its event tells it."""

    event_id: int
    partition_key: int
    execution_id: UUID
    outcome: str


class Decision(msgspec.Struct, frozen=True):
    """What a group came to (`pending`: nothing yet), and whose results its downstream is fed."""

    partition_key: int
    downstream_eid: UUID
    wakes: UUID | None
    on_satisfied: str | None
    decision: str
    sources: list[UUID] | None
    owed: bool

    @property
    def target(self) -> ExecutionId:
        """Who waits for the group."""
        return ExecutionId(self.partition_key, self.wakes or self.downstream_eid)


async def resolve_edges(
    conn: Connection,
    ends: Sequence[MemberCompletion],
    *,
    only_edge: UUID | None = None,
    decides: bool = True,
) -> list[Decision]:
    """Every edge that hears of the ends is resolved, and its group judged.

    With `only_edge` no other edge hears of them yet, so they stay to be dispatched. Unless it
    `decides`, the groups only count, and the caller judges them.
    """
    return await fetch_all(
        conn,
        RESOLVE,
        Decision,
        event_id=[end.event_id for end in ends],
        partition_key=[end.partition_key for end in ends],
        execution_id=[end.execution_id for end in ends],
        outcome=[end.outcome for end in ends],
        only_edge=only_edge,
        decides=decides,
    )
