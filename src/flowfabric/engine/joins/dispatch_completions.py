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

# The order is that of an index which has nothing else: among many ends of executions without a flow
# a planner that is free to choose would expect to come across one soon, and read them all.
UNDISPATCHED: Final[LiteralString] = """
-- joins.undispatched
SELECT count(*) AS moved
  FROM (SELECT FROM ff.completion_event
         WHERE dispatched_at_ms IS NULL AND flow_id IS NOT NULL
         ORDER BY event_id LIMIT 1) AS found
"""

PICK: Final[LiteralString] = """
-- joins.dispatch_completions: which ends, and the groups that hear of them
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
    ends = await fetch_all(conn, PICK, MemberCompletion, limit=min(limit, MAX_BATCH))
    if not ends:
        return Dispatched(0)
    siblings = await apply_decisions(conn, await resolve_edges(conn, ends))
    lost = [
        ExecutionId(end.partition_key, end.execution_id)
        for end in ends
        if end.outcome != TerminalOutcome.SUCCESS
    ]
    return Dispatched(len(ends), await queue_children(conn, lost) or siblings)
