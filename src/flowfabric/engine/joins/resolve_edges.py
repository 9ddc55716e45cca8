"""Completions resolve the edges that lead from them; the joins of those edges may be decided."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId, GroupId
from flowfabric.states import GroupState, WaitsAs

RESOLVE_EDGES: Final[LiteralString] = """
-- joins.resolve_edges
WITH completion AS (
    SELECT * FROM unnest(%(event_id)s::bigint[], %(partition_key)s::smallint[],
                         %(execution_id)s::uuid[], %(outcome)s::text[], %(whole)s::boolean[])
        AS completion (event_id, partition_key, upstream_eid, outcome, whole)
), open_edge AS MATERIALIZED (  -- each with the first completion that counts for it
    SELECT DISTINCT ON (e.partition_key, e.flow_id, e.edge_id)
           e.partition_key, e.flow_id, e.edge_id, completion.event_id, completion.outcome
      FROM completion CROSS JOIN LATERAL (  -- driven by the completions, whatever statistics say
           SELECT * FROM ff.edge e
            WHERE (e.partition_key, e.upstream_eid)
                = (completion.partition_key, completion.upstream_eid)
              AND e.edge_state = 'applied' AND e.resolution = 'unresolved'
              AND completion.event_id > e.min_event_id
              AND (%(only_edge)s::uuid IS NULL OR e.edge_id = %(only_edge)s)
              AND (%(only_groups)s::uuid[] IS NULL
                   OR e.group_id IN (SELECT unnest(%(only_groups)s::uuid[])))
           OFFSET 0) AS e
     ORDER BY e.partition_key, e.flow_id, e.edge_id, completion.event_id
), resolved AS (
    UPDATE ff.edge e
       SET resolution = CASE o.outcome WHEN 'success' THEN 'satisfied' ELSE 'impossible' END,
           resolved_outcome = o.outcome, resolved_at_ms = ff.now_ms(),
           resolved_event_id = o.event_id
      FROM open_edge o
     WHERE (e.partition_key, e.flow_id, e.edge_id) = (o.partition_key, o.flow_id, o.edge_id)
       AND e.resolution = 'unresolved'
 RETURNING e.partition_key, e.group_id, e.upstream_eid, e.data_passing_ref, o.outcome, o.event_id
), counted AS (
    SELECT partition_key, group_id,
           (count(*) FILTER (WHERE outcome = 'success'))::integer AS succeeded,
           (count(*) FILTER (WHERE outcome = 'skipped'))::integer AS skipped,
           (count(*) FILTER (WHERE outcome NOT IN ('success', 'skipped')))::integer AS failed,
           count(*)::integer AS resolved
      FROM resolved GROUP BY partition_key, group_id
), evaluated AS (     -- the joins as they will be; the caller has locked them
    SELECT g.partition_key, g.group_id, g.group_state AS old_state,
           g.success_count AS succeeded_before,
           counted.succeeded, counted.skipped, counted.failed, counted.resolved,
           CASE WHEN g.group_state <> 'pending' THEN g.group_state
                WHEN NOT %(decides)s THEN 'pending'
                ELSE ff.group_decision(
                         g.policy_kind, g.k, g.expected_n, g.success_count + counted.succeeded,
                         g.fail_count + counted.failed, g.skip_count + counted.skipped,
                         g.running_count - counted.resolved) END AS new_state
      FROM counted JOIN ff.edge_group g USING (partition_key, group_id)
), decided AS (
    UPDATE ff.edge_group g
       SET success_count = g.success_count + v.succeeded, fail_count = g.fail_count + v.failed,
           skip_count = g.skip_count + v.skipped, running_count = g.running_count - v.resolved,
           group_state = v.new_state,
           fired_at_ms = CASE WHEN v.new_state = 'pending' THEN NULL
                              ELSE coalesce(g.fired_at_ms, ff.now_ms()) END
      FROM evaluated v
     WHERE (g.partition_key, g.group_id) = (v.partition_key, v.group_id)
 RETURNING g.partition_key, g.group_id, g.waiter_eid, g.waits_as, g.policy_kind, g.k,
           g.on_satisfied, v.old_state, v.new_state, v.succeeded_before
), passing AS (       -- successes whose result is passed on, each with its rank in its join
    SELECT r.partition_key, r.group_id, r.upstream_eid, r.event_id,
           (SELECT count(*) FROM resolved other
             WHERE (other.partition_key, other.group_id) = (r.partition_key, r.group_id)
               AND other.outcome = 'success' AND other.event_id <= r.event_id) AS nth
      FROM resolved r WHERE r.data_passing_ref <> '' AND r.outcome = 'success'
), passed AS MATERIALIZED (  -- of an all-of every result, else that of the success which decides
    SELECT decided.partition_key, decided.group_id,
           array_agg(passing.upstream_eid ORDER BY passing.event_id) AS sources
      FROM passing JOIN decided USING (partition_key, group_id)
     WHERE decided.old_state = 'pending'
       AND (decided.policy_kind = 'all_of'
            OR %(decides)s AND decided.new_state = 'satisfied'
               AND decided.succeeded_before + passing.nth
                 = CASE decided.policy_kind WHEN 'any_of' THEN 1 ELSE decided.k END)
     GROUP BY decided.partition_key, decided.group_id
), dispatched AS (
    UPDATE ff.completion_event c SET dispatched_at_ms = ff.now_ms()
      FROM completion
     WHERE (c.event_id, c.partition_key) = (completion.event_id, completion.partition_key)
       AND %(only_edge)s::uuid IS NULL AND completion.whole
)
SELECT decided.partition_key, decided.group_id, decided.waiter_eid, decided.waits_as,
       decided.on_satisfied, decided.new_state AS decision, passed.sources,
       decided.waits_as = 'member' AND EXISTS (
           SELECT FROM ff.cancel_backlog_member m
            WHERE (m.partition_key, m.execution_id)
                = (decided.partition_key, decided.waiter_eid)) AS cancel_pending
  FROM decided LEFT JOIN passed USING (partition_key, group_id)
 WHERE decided.old_state = 'pending'
   AND (decided.new_state <> 'pending' OR passed.sources IS NOT NULL)
 ORDER BY decided.partition_key, decided.group_id
"""


class MemberCompletion(msgspec.Struct, frozen=True):
    """How a member ended, as its completion event says."""

    event_id: int
    partition_key: int
    execution_id: UUID
    outcome: str


class Decision(msgspec.Struct, frozen=True):
    """How a join was decided (`pending`: not yet), and whose results its waiter gets."""

    partition_key: int
    group_id: UUID
    waiter_eid: UUID
    waits_as: str
    on_satisfied: str | None
    decision: str
    sources: list[UUID] | None
    cancel_pending: bool
    """Is the waiter a member that its cancelled flow is about to end?"""

    @property
    def group(self) -> GroupId:
        """The join."""
        return GroupId(self.partition_key, self.group_id)

    @property
    def waiter(self) -> ExecutionId:
        """The execution that waits."""
        return ExecutionId(self.partition_key, self.waiter_eid)

    @property
    def is_decided(self) -> bool:
        return self.decision != GroupState.PENDING

    @property
    def lets_waiter_run(self) -> bool:
        """A handler goes on whatever became of its children; a member only when satisfied."""
        return self.is_decided and (
            self.waits_as == WaitsAs.CHILDREN or self.decision == GroupState.SATISFIED
        )


async def resolve_edges(
    conn: Connection,
    completions: Sequence[MemberCompletion],
    *,
    only_edge: UUID | None = None,
    only_groups: Sequence[UUID] | None = None,
    partly: Collection[int] = (),
    decides: bool = True,
) -> list[Decision]:
    """Every open edge that leads from these completions is resolved, and its join evaluated.

    With `only_edge` no other edge is resolved, and the completions stay to be dispatched. With
    `only_groups` only edges to these joins are resolved; the completions whose events are `partly`
    resolved then stay to be dispatched. Without `decides` the joins only count, and the caller
    evaluates them. The caller has locked the joins.
    """
    return await fetch_all(
        conn,
        RESOLVE_EDGES,
        Decision,
        event_id=[each.event_id for each in completions],
        partition_key=[each.partition_key for each in completions],
        execution_id=[each.execution_id for each in completions],
        outcome=[each.outcome for each in completions],
        whole=[each.event_id not in partly for each in completions],
        only_edge=only_edge,
        only_groups=only_groups,
        decides=decides,
    )
