"""Completions that left an edge unresolved, although marked dispatched, are dispatched again."""

from __future__ import annotations

import logging
import random
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId

EDGES_EACH: Final = 20
LOOKED_AT: Final = 1000

# A dispatch resolves edges and marks completions in one transaction, so this finds something only
# where that was broken. An edge is resolved at most once: dispatching again changes nothing else.
# The cost does not depend on how many executions wait: a call looks at some, from a random start.
# The limits and the `+ 0` keep the plan to one join, one upstream and its own events.
REDISPATCH_LOST_COMPLETIONS: Final[LiteralString] = """
-- joins.redispatch_lost_completions
WITH looked_at AS (   -- some executions that wait, from `start` on and round the end
    (SELECT partition_key, execution_id FROM ff.exec_core
      WHERE exceptional_state = 'blocked_by_dependencies'
        AND uuid_hash(execution_id) >= %(start)s::integer
      ORDER BY uuid_hash(execution_id) LIMIT %(looked_at)s)
     UNION ALL
    (SELECT partition_key, execution_id FROM ff.exec_core
      WHERE exceptional_state = 'blocked_by_dependencies'
        AND uuid_hash(execution_id) < %(start)s::integer
      ORDER BY uuid_hash(execution_id) LIMIT %(looked_at)s)
     LIMIT %(looked_at)s
), awaited AS (       -- the joins that they wait for
    SELECT l.partition_key, g.group_id
      FROM looked_at l CROSS JOIN LATERAL (
           SELECT g.group_id FROM ff.edge_group g
            WHERE (g.partition_key, g.waiter_eid) = (l.partition_key, l.execution_id)
              AND g.group_state = 'pending' OFFSET 0) AS g
), behind AS (        -- joins of which an upstream has ended, with its last completion
    SELECT a.partition_key, a.group_id, open.flow_id, last.event_id
      FROM awaited a CROSS JOIN LATERAL (
           SELECT e.flow_id, e.upstream_eid, e.min_event_id FROM ff.edge e
            WHERE e.group_id = a.group_id AND e.partition_key + 0 = a.partition_key
              AND e.edge_state = 'applied' AND e.resolution = 'unresolved'
            LIMIT %(edges_each)s) AS open
     CROSS JOIN LATERAL (
           SELECT u.lifecycle_phase, u.route_id, u.created_at_ms FROM ff.exec_core u
            WHERE (u.partition_key, u.execution_id) = (a.partition_key, open.upstream_eid)
            LIMIT 1) AS upstream
     CROSS JOIN LATERAL (
           SELECT c.event_id, c.flow_id, c.dispatched_at_ms FROM ff.completion_event c
            WHERE (c.route_id, c.created_at_ms) = (upstream.route_id, upstream.created_at_ms)
              AND c.execution_id = open.upstream_eid AND c.partition_key = a.partition_key
            ORDER BY c.event_id + 0 DESC LIMIT 1) AS last
     WHERE upstream.lifecycle_phase = 'terminal' AND last.event_id > open.min_event_id
       AND (last.dispatched_at_ms IS NOT NULL OR last.flow_id IS NULL)
), chosen AS (
    SELECT DISTINCT partition_key, event_id, flow_id FROM behind
     WHERE (partition_key, group_id) IN (
               SELECT partition_key, group_id FROM behind
                GROUP BY partition_key, group_id LIMIT %(limit)s)
), free AS (          -- passing over rows in use
    SELECT c.event_id, c.partition_key, chosen.flow_id
      FROM ff.completion_event c JOIN chosen USING (event_id, partition_key)
       FOR UPDATE OF c SKIP LOCKED
)
UPDATE ff.completion_event c
   SET dispatched_at_ms = NULL, flow_id = coalesce(c.flow_id, free.flow_id)
  FROM free
 WHERE (c.event_id, c.partition_key) = (free.event_id, free.partition_key)
RETURNING c.partition_key, c.execution_id
"""

log: Final = logging.getLogger("flowfabric.flows")


class _Lost(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def redispatch_lost_completions(conn: Connection, limit: int) -> int:
    """Mark the lost completions of at most `limit` joins as not dispatched; how many.

    The next dispatch resolves their edges. Of more than `LOOKED_AT` executions that wait, each call
    looks at others.
    """
    lost = await fetch_all(
        conn,
        REDISPATCH_LOST_COMPLETIONS,
        _Lost,
        limit=limit,
        looked_at=LOOKED_AT,
        edges_each=EDGES_EACH,
        start=random.randrange(-(2**31), 2**31),
    )
    if lost:
        ended = ", ".join(str(ExecutionId(each.partition_key, each.execution_id)) for each in lost)
        log.warning("invariant_violation: dispatched, but an edge was left unresolved: %s", ended)
    return len(lost)
