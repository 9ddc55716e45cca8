"""Completions of flow members are dispatched: their edges are resolved, their joins decided."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, Moved, fetch_all, fetch_one
from flowfabric.engine.joins.apply_decisions import apply_decisions
from flowfabric.engine.joins.queue_children import queue_children
from flowfabric.engine.joins.resolve_edges import MemberCompletion, resolve_edges
from flowfabric.ids import ExecutionId
from flowfabric.states import TerminalOutcome

MAX_BATCH: Final = 256

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
     ORDER BY event_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), locked AS (        -- in one order; of a parent that did not succeed also the joins for children
    SELECT g.group_id FROM ff.edge_group g
     WHERE (g.partition_key, g.group_id) IN (
               SELECT e.partition_key, e.group_id
                 FROM picked p JOIN ff.edge e
                   ON (e.partition_key, e.upstream_eid) = (p.partition_key, p.execution_id)
                WHERE e.edge_state = 'applied' AND e.resolution = 'unresolved'
                UNION ALL
               SELECT w.partition_key, w.group_id
                 FROM picked p JOIN ff.edge_group w
                   ON (w.partition_key, w.waiter_eid) = (p.partition_key, p.execution_id)
                WHERE p.outcome <> 'success' AND w.waits_as = 'children')
     ORDER BY g.partition_key, g.group_id FOR NO KEY UPDATE
)
SELECT event_id, partition_key, execution_id, outcome, (SELECT count(*) FROM locked) AS joins
  FROM picked ORDER BY event_id
"""


class _Picked(MemberCompletion, frozen=True):
    joins: int
    """How many joins were locked for all of the completions."""


class Dispatched(msgspec.Struct, frozen=True):
    """How many completions were dispatched, and whether siblings may be listed for a cancel."""

    completions: int
    siblings: bool = False


async def undispatched(conn: Connection) -> bool:
    """Is there a completion of a member that was not dispatched?"""
    return (await fetch_one(conn, UNDISPATCHED, Moved)).moved > 0


async def dispatch_completions(conn: Connection, limit: int = MAX_BATCH) -> int:
    """Dispatch at most `limit` completions, all or none; answers how many.

    Needs a transaction. Completions that another dispatcher works on are passed over. A waiter
    that is skipped has a completion of its own, which the next call dispatches.
    """
    return (await dispatch_batch(conn, limit)).completions


async def dispatch_batch(conn: Connection, limit: int = MAX_BATCH) -> Dispatched:
    """As `dispatch_completions`, for a caller that cancels siblings at once."""
    completions = await fetch_all(conn, PICK, _Picked, limit=min(limit, MAX_BATCH))
    if not completions:
        return Dispatched(0)
    siblings = await apply_decisions(conn, await resolve_edges(conn, completions))
    unsuccessful = [
        ExecutionId(each.partition_key, each.execution_id)
        for each in completions
        if each.outcome != TerminalOutcome.SUCCESS
    ]
    return Dispatched(len(completions), await queue_children(conn, unsuccessful) or siblings)
