"""Completions of flow members are dispatched: their edges are resolved, their joins decided."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.faults import LockTimeout, translated
from flowfabric.db.rows import Connection, Moved, fetch_all, fetch_one
from flowfabric.engine.joins.apply_decisions import apply_decisions
from flowfabric.engine.joins.queue_children import queue_children
from flowfabric.engine.joins.resolve_edges import MemberCompletion, resolve_edges
from flowfabric.ids import ExecutionId
from flowfabric.states import TerminalOutcome

MAX_BATCH: Final = 256
MAX_EDGES: Final = 5000
"""Edges that one call resolves at most."""
LOOKED_AT: Final = 4096
"""Completions among which a call that passes over locked rows looks for some to dispatch."""
LOCK_TIMEOUT: Final = "1s"
"""How long a dispatcher waits for others at a join before it passes over what is locked."""

# The order makes the planner use the partial index. Without it the planner expects to find a
# member's completion soon in a scan of the table, and reads all those of executions without a flow.
UNDISPATCHED: Final[LiteralString] = """
-- joins.undispatched
SELECT count(*) AS moved
  FROM (SELECT FROM ff.completion_event
         WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL
         ORDER BY event_id LIMIT 1) AS found
"""

PICK: Final[LiteralString] = """
-- joins.dispatch_completions: which completions, with the joins that they concern
WITH picked AS (      -- the oldest that no other dispatcher works on
    SELECT event_id, partition_key, execution_id, outcome FROM ff.completion_event
     WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL
       AND (SELECT set_config('lock_timeout', %(lock_timeout)s, true)) IS NOT NULL
     ORDER BY event_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), open_edge AS MATERIALIZED (  -- event by event, up to one more than the cap
    SELECT p.event_id, p.partition_key, e.group_id
      FROM picked p CROSS JOIN LATERAL (
           SELECT e.group_id FROM ff.edge e
            WHERE (e.partition_key, e.upstream_eid) = (p.partition_key, p.execution_id)
              AND e.edge_state = 'applied' AND e.resolution = 'unresolved'
              AND p.event_id > e.min_event_id
           OFFSET 0) AS e
     LIMIT %(max_edges)s + 1
), cut AS (           -- the event with which the cap is passed, if it is
    SELECT CASE WHEN count(*) > %(max_edges)s THEN max(event_id) END AS event_id,
           max(event_id) = (SELECT min(event_id) FROM picked) AS is_first
      FROM open_edge
), chosen AS (        -- the events before that one; if there are none, a part of its edges
    SELECT p.event_id, p.partition_key, p.execution_id, p.outcome,
           p.event_id IS NOT DISTINCT FROM cut.event_id AS partly
      FROM picked p CROSS JOIN cut
     WHERE cut.event_id IS NULL OR p.event_id < cut.event_id
        OR p.event_id = cut.event_id AND cut.is_first
), locked AS (        -- in one order; of a parent that did not succeed also the joins for children
    SELECT g.group_id FROM ff.edge_group g
     WHERE (g.partition_key, g.group_id) IN (
               SELECT o.partition_key, o.group_id FROM open_edge o CROSS JOIN cut
                WHERE cut.event_id IS NULL OR o.event_id < cut.event_id OR cut.is_first
                UNION ALL
               SELECT p.partition_key, w.group_id
                 FROM chosen p CROSS JOIN LATERAL (
                      SELECT w.group_id FROM ff.edge_group w
                       WHERE (w.partition_key, w.waiter_eid) = (p.partition_key, p.execution_id)
                         AND w.waits_as = 'children' OFFSET 0) AS w
                WHERE p.outcome <> 'success')
     ORDER BY g.partition_key, g.group_id FOR NO KEY UPDATE
)
SELECT event_id, partition_key, execution_id, outcome, partly,
       CASE WHEN partly THEN ARRAY(SELECT o.group_id FROM open_edge o LIMIT %(max_edges)s) END
           AS groups,
       (SELECT count(*) FROM locked) AS joins,
       (SELECT event_id IS NOT NULL FROM cut) AS capped
  FROM chosen ORDER BY event_id
"""

# Nothing here waits, so the order of the locks does not matter.
PICK_FREE: Final[LiteralString] = """
-- joins.dispatch_completions: as far as no other transaction has locked
WITH picked AS (
    SELECT event_id, partition_key, execution_id, outcome FROM ff.completion_event
     WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL
     ORDER BY event_id LIMIT %(looked_at)s FOR UPDATE SKIP LOCKED
), free_edge AS MATERIALIZED (
    SELECT p.event_id, g.group_id
      FROM picked p CROSS JOIN LATERAL (
           SELECT e.group_id FROM ff.edge e
            WHERE (e.partition_key, e.upstream_eid) = (p.partition_key, p.execution_id)
              AND e.edge_state = 'applied' AND e.resolution = 'unresolved'
              AND p.event_id > e.min_event_id
           OFFSET 0) AS e
      JOIN ff.edge_group g ON (g.partition_key, g.group_id) = (p.partition_key, e.group_id)
      JOIN ff.exec_core w ON (w.partition_key, w.execution_id) = (g.partition_key, g.waiter_eid)
     LIMIT %(max_edges)s FOR NO KEY UPDATE OF g, w SKIP LOCKED
), free_child AS MATERIALIZED ( -- joins for children, of parents that did not succeed
    SELECT p.event_id, g.group_id
      FROM picked p CROSS JOIN LATERAL (
           SELECT g.group_id FROM ff.edge_group g
            WHERE (g.partition_key, g.waiter_eid) = (p.partition_key, p.execution_id)
              AND g.waits_as = 'children'
              FOR NO KEY UPDATE SKIP LOCKED) AS g
     WHERE p.outcome <> 'success'
), counted AS (       -- of each event how much there is to do, and how much of it can be done
    SELECT p.event_id, p.partition_key, p.execution_id, p.outcome, free.groups,
           (SELECT count(*) FROM ff.edge e
             WHERE (e.partition_key, e.upstream_eid) = (p.partition_key, p.execution_id)
               AND e.edge_state = 'applied' AND e.resolution = 'unresolved'
               AND p.event_id > e.min_event_id) = cardinality(free.groups)
           AND (SELECT count(*) FROM ff.edge_group g
                 WHERE (g.partition_key, g.waiter_eid) = (p.partition_key, p.execution_id)
                   AND p.outcome <> 'success' AND g.waits_as = 'children')
             = (SELECT count(*) FROM free_child c WHERE c.event_id = p.event_id) AS whole
      FROM picked p CROSS JOIN LATERAL (
           SELECT ARRAY(SELECT f.group_id FROM free_edge f WHERE f.event_id = p.event_id) AS groups
           ) AS free
)
SELECT event_id, partition_key, execution_id, outcome, NOT whole AS partly, groups,
       cardinality(groups)::bigint AS joins, true AS capped
  FROM counted WHERE whole OR groups <> '{}'
 ORDER BY event_id LIMIT %(limit)s
"""


class _Picked(MemberCompletion, frozen=True):
    partly: bool
    """Are other edges of the completion left for later?"""
    groups: list[UUID] | None
    """The joins whose edges are resolved now; None: every join that the completion concerns."""
    joins: int
    """How many joins were locked."""
    capped: bool
    """Were completions passed over that can be dispatched next?"""


class Dispatched(msgspec.Struct, frozen=True):
    """How many completions were dispatched, and whether siblings may be listed for a cancel."""

    completions: int
    siblings: bool = False
    partly: int = 0
    """How many others of which only some edges were resolved."""
    more: bool = False
    """May there be completions that were there before, or that this call has caused?"""

    @property
    def moved(self) -> int:
        """How many completions were worked on."""
        return self.completions + self.partly


async def undispatched(conn: Connection) -> bool:
    """Is there a completion of a member that was not dispatched?"""
    return (await fetch_one(conn, UNDISPATCHED, Moved)).moved > 0


async def dispatch_completions(conn: Connection, limit: int = MAX_BATCH) -> int:
    """Dispatch at most `limit` completions, all or none; how many, also if only in part.

    Needs a transaction. Completions that another dispatcher works on are passed over. A waiter
    that is skipped has a completion of its own, which the next call dispatches. A join or a waiter
    that another transaction keeps locked is passed over after a second, and its edges stay open.
    """
    try:
        with translated("-- joins.dispatch_completions: savepoint\n"):
            async with conn.transaction():
                return (await dispatch_batch(conn, limit)).moved
    except LockTimeout:
        return (await dispatch_batch(conn, limit, pass_over_locked=True)).moved


async def dispatch_batch(
    conn: Connection,
    limit: int = MAX_BATCH,
    *,
    pass_over_locked: bool = False,
    lock_timeout: str = LOCK_TIMEOUT,
) -> Dispatched:
    """As `dispatch_completions`, for a caller that cancels siblings at once.

    Raises `LockTimeout` where that would pass over a lock, after `lock_timeout`, unless
    `pass_over_locked`: then nothing waits. At most `MAX_EDGES` edges are resolved; of a completion
    with more the next call resolves others, and the last call marks the completion as dispatched.
    """
    size = min(limit, MAX_BATCH)
    if pass_over_locked:
        picked = await fetch_all(
            conn, PICK_FREE, _Picked, limit=size, looked_at=LOOKED_AT, max_edges=MAX_EDGES
        )
    else:
        picked = await fetch_all(
            conn, PICK, _Picked, limit=size, lock_timeout=lock_timeout, max_edges=MAX_EDGES
        )
    if not picked:
        return Dispatched(0)
    partly = {each.event_id for each in picked if each.partly}
    decisions = await resolve_edges(
        conn,
        picked,
        only_groups=[group for each in picked for group in each.groups or ()] if partly else None,
        partly=partly,
    )
    siblings = await apply_decisions(conn, decisions)
    unsuccessful = [
        ExecutionId(each.partition_key, each.execution_id)
        for each in picked
        if each.outcome != TerminalOutcome.SUCCESS and not each.partly
    ]
    siblings = await queue_children(conn, unsuccessful) or siblings
    ends_waiters = any(each.is_decided and not each.lets_waiter_run for each in decisions)
    more = len(picked) == size or picked[0].capped or ends_waiters or siblings
    return Dispatched(len(picked) - len(partly), siblings, len(partly), more)
