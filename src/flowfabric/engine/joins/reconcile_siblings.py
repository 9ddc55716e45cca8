"""Listings of joins that have nothing left to cancel are dropped."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.counters import SIBLING_RECONCILES
from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.joins.cancel_siblings import GROUPS_AT_ONCE

RECONCILE_SIBLINGS: Final[LiteralString] = """
-- joins.reconcile_siblings
WITH idle AS (        -- the join was deleted, or has nothing left to cancel
    SELECT p.partition_key, p.flow_id, p.group_id FROM ff.pending_cancel_groups p
     WHERE NOT EXISTS (SELECT FROM ff.edge_group g
                        WHERE (g.partition_key, g.group_id)
                            = (p.partition_key, p.group_id)
                          AND g.cancel_siblings_pending_flag)
     LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), dropped AS (
    DELETE FROM ff.pending_cancel_groups p USING idle
     WHERE (p.partition_key, p.flow_id, p.group_id)
         = (idle.partition_key, idle.flow_id, idle.group_id)
 RETURNING 1
)
SELECT count(*) AS moved FROM dropped
"""


async def reconcile_siblings(conn: Connection, limit: int = GROUPS_AT_ONCE) -> int:
    """Drop at most `limit` listings of joins that have nothing left to cancel."""
    dropped = (await fetch_one(conn, RECONCILE_SIBLINGS, Moved, limit=limit)).moved
    SIBLING_RECONCILES.add("sremmed_stale" if dropped else "no_op", count=dropped or 1)
    return dropped
