"""Ends of members travel along their edges: downstreams are promoted, skipped, or wait on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_all, fetch_one
from flowfabric.engine.flows.queue_children import queue_children
from flowfabric.engine.flows.queue_siblings import queue_siblings
from flowfabric.engine.lifecycle.feed_results import feed_results
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.promote_dependents import promote_dependents
from flowfabric.engine.lifecycle.terminalize import terminalize
from flowfabric.ids import ExecutionId
from flowfabric.states import GroupState, OnSatisfied, TerminalOutcome

MAX_BATCH: Final = 256
IMPOSSIBLE: Final = "dependency_impossible"

# The order is that of an index which has nothing else: among many ends of executions without a flow
# a planner that is free to choose would expect to come across one soon, and read them all.
UNDISPATCHED: Final[LiteralString] = """
-- flows.undispatched
SELECT count(*) AS moved
  FROM (SELECT FROM ff.completion_event
         WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL
         ORDER BY event_id LIMIT 1) AS found
"""

PICK: Final[LiteralString] = """
-- flows.dispatch_completions: which ends, and the groups that hear of them
WITH picked AS (      -- the oldest that nobody else dispatches
    SELECT event_id, partition_key, execution_id, outcome FROM ff.completion_event
     WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL
     ORDER BY event_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), locked AS (        -- in one order; of who came to no good end also the waits for its children
    SELECT g.downstream_eid FROM ff.edge_group g
     WHERE (g.partition_key, g.downstream_eid) IN (
               SELECT e.partition_key, e.downstream_eid
                 FROM picked p JOIN ff.edge e
                   ON (e.partition_key, e.upstream_eid) = (p.partition_key, p.execution_id)
                WHERE e.edge_state = 'applied' AND e.resolution = 'unresolved'
                UNION ALL
               SELECT w.partition_key, w.downstream_eid
                 FROM picked p JOIN ff.edge_group w
                   ON (w.partition_key, w.wakes) = (p.partition_key, p.execution_id)
                WHERE p.outcome <> 'success')
     ORDER BY g.partition_key, g.downstream_eid FOR NO KEY UPDATE
)
SELECT event_id, partition_key, execution_id, outcome FROM picked
 WHERE (SELECT count(*) FROM locked) IS NOT NULL
 ORDER BY event_id
"""

RESOLVE: Final[LiteralString] = """
-- flows.dispatch_completions: every edge they touch, and what the groups come to
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


OWED: Final[LiteralString] = """
-- flows.owed_an_end
SELECT m.partition_key, m.execution_id
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
  JOIN ff.cancel_backlog_member m USING (partition_key, execution_id)
"""


class _Owed(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


class End(msgspec.Struct, frozen=True):
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


async def undispatched(conn: Connection) -> bool:
    """Is there an end of a member that no edge has heard of?"""
    return (await fetch_one(conn, UNDISPATCHED, Moved)).moved > 0


class Dispatched(msgspec.Struct, frozen=True):
    """How many ends were carried, and whether anybody is listed for a cancel now."""

    ends: int
    siblings: bool = False


async def dispatch_completions(conn: Connection, limit: int = MAX_BATCH) -> int:
    """Carry at most `limit` ends across their edges, all or nothing; how many it were.

    Needs a transaction. Ends that another dispatcher carries are passed over; a downstream that is
    skipped has an end of its own, which the next call carries on.
    """
    return (await dispatch_batch(conn, limit)).ends


async def dispatch_batch(conn: Connection, limit: int = MAX_BATCH) -> Dispatched:
    """As `dispatch_completions`, for a caller who cancels siblings at once."""
    ends = await fetch_all(conn, PICK, End, limit=min(limit, MAX_BATCH))
    if not ends:
        return Dispatched(0)
    siblings = await act(conn, await resolve(conn, ends))
    lost = [
        ExecutionId(end.partition_key, end.execution_id)
        for end in ends
        if end.outcome != TerminalOutcome.SUCCESS
    ]
    return Dispatched(len(ends), await queue_children(conn, lost) or siblings)


async def resolve(
    conn: Connection,
    ends: Sequence[End],
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


async def owed_an_end(conn: Connection, executions: Sequence[ExecutionId]) -> set[ExecutionId]:
    """Those that a cancelled flow is about to end."""
    rows = await fetch_all(
        conn,
        OWED,
        _Owed,
        partition_key=[each.partition_key for each in executions],
        execution_id=[each.uuid for each in executions],
    )
    return {ExecutionId(row.partition_key, row.execution_id) for row in rows}


async def act(conn: Connection, decisions: Sequence[Decision]) -> bool:
    """Results are passed on, downstreams promoted or skipped, siblings queued for their cancel.

    A downstream that its cancelled flow still owes an end is left to that. True if siblings may be
    queued now.
    """
    fed = list(_fed(decisions))
    fired = [each for each in decisions if each.decision != GroupState.PENDING]
    ready = [
        each.target
        for each in fired
        if not each.owed and (each.decision == GroupState.SATISFIED or each.wakes is not None)
    ]
    lost = [
        each.target
        for each in fired
        if not each.owed and each.decision == GroupState.IMPOSSIBLE and each.wakes is None
    ]
    if fed or lost:
        # In one order. Nobody is listed for a cancel while it is locked: who is by now stays so,
        # and who has ended is fed nothing.
        await lock_executions(conn, [*{*(target for _, target in fed), *ready, *lost}])
    if fed:
        await feed_results(conn, fed)
    if ready:
        await promote_dependents(conn, ready)
    if lost:
        listed = await owed_an_end(conn, lost)
        skipped = [each for each in lost if each not in listed]
        await terminalize(conn, skipped, outcome=TerminalOutcome.SKIPPED, reason=IMPOSSIBLE)
    unneeded = [
        (ExecutionId(each.partition_key, each.downstream_eid), GroupState(each.decision))
        for each in fired
        if each.on_satisfied == OnSatisfied.CANCEL_REMAINING
    ]
    await queue_siblings(conn, unneeded)
    return bool(unneeded)


def _fed(decisions: Sequence[Decision]) -> Iterable[tuple[ExecutionId, ExecutionId]]:
    for each in decisions:
        for source in each.sources or ():
            yield ExecutionId(each.partition_key, source), each.target
