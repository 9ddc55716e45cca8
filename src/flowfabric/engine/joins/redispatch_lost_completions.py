"""Ends that an edge never heard of, although they count as dispatched, are dispatched once more."""

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

# A dispatch resolves edges and marks its ends in one transaction, so that this finds something only
# where that was broken. An edge is resolved at most once: nothing else changes by it.
# A look costs the same however many wait; it begins somewhere else each time. The limits and the
# `+ 0` keep the plan to one upstream and its own events: neither all that ended nor the whole log.
REDISPATCH_LOST_COMPLETIONS: Final[LiteralString] = """
-- joins.redispatch_lost_completions
WITH looked_at AS (   -- some of those that wait for others, from `start` on and round the end
    (SELECT partition_key, execution_id FROM ff.exec_core
      WHERE eligibility_state = 'blocked_by_dependencies'
        AND uuid_hash(execution_id) >= %(start)s::integer
      ORDER BY uuid_hash(execution_id) LIMIT %(looked_at)s)
     UNION ALL
    (SELECT partition_key, execution_id FROM ff.exec_core
      WHERE eligibility_state = 'blocked_by_dependencies'
        AND uuid_hash(execution_id) < %(start)s::integer
      ORDER BY uuid_hash(execution_id) LIMIT %(looked_at)s)
     LIMIT %(looked_at)s
), awaited AS (       -- their own groups, and those of their children
    SELECT partition_key, execution_id AS downstream_eid FROM looked_at
     UNION ALL
    SELECT w.partition_key, w.downstream_eid
      FROM looked_at l JOIN ff.edge_group w
        ON (w.partition_key, w.wakes) = (l.partition_key, l.execution_id)
     WHERE w.group_state = 'pending'
), behind AS (        -- groups of which an upstream has ended, with its last end
    SELECT a.partition_key, a.downstream_eid, open.flow_id, told.event_id
      FROM awaited a CROSS JOIN LATERAL (
           SELECT e.flow_id, e.upstream_eid, e.min_event_id FROM ff.edge e
            WHERE (e.partition_key, e.downstream_eid) = (a.partition_key, a.downstream_eid)
              AND e.edge_state = 'applied' AND e.resolution = 'unresolved'
            LIMIT %(edges_each)s) AS open
     CROSS JOIN LATERAL (
           SELECT u.lifecycle_phase FROM ff.exec_core u
            WHERE (u.partition_key, u.execution_id) = (a.partition_key, open.upstream_eid)
            LIMIT 1) AS upstream
     CROSS JOIN LATERAL (
           SELECT c.event_id, c.flow_id, c.dispatched_at_ms FROM ff.completion_event c
            WHERE c.execution_id = open.upstream_eid AND c.partition_key = a.partition_key
            ORDER BY c.event_id + 0 DESC LIMIT 1) AS told
     WHERE upstream.lifecycle_phase = 'terminal' AND told.event_id > open.min_event_id
       AND (told.dispatched_at_ms IS NOT NULL OR told.flow_id IS NULL)
), chosen AS (
    SELECT DISTINCT partition_key, event_id, flow_id FROM behind
     WHERE (partition_key, downstream_eid) IN (
               SELECT partition_key, downstream_eid FROM behind
                GROUP BY partition_key, downstream_eid LIMIT %(limit)s)
)
UPDATE ff.completion_event c
   SET dispatched_at_ms = NULL, flow_id = coalesce(c.flow_id, chosen.flow_id)
  FROM chosen
 WHERE (c.event_id, c.partition_key) = (chosen.event_id, chosen.partition_key)
RETURNING c.partition_key, c.execution_id
"""

log: Final = logging.getLogger("flowfabric.flows")


class _Lost(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def redispatch_lost_completions(conn: Connection, limit: int) -> int:
    """Mark ends that at most `limit` executions wait for in vain as not dispatched; how many.

    The next dispatch carries them. Of more than `LOOKED_AT` that wait, others are looked at each
    time.
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
        log.warning("invariant_violation: dispatched ends that an edge never heard of: %s", ended)
    return len(lost)
