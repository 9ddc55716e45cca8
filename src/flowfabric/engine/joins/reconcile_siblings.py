"""Listings of joins that have nothing left to cancel are dropped."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.joins.cancel_siblings import GROUPS_AT_ONCE

RECONCILE_SIBLINGS: Final[LiteralString] = """
-- joins.reconcile_siblings
WITH idle AS (        -- nothing is owed: the group is gone, or its flag is down
    SELECT p.partition_key, p.flow_id, p.downstream_eid FROM ff.pending_cancel_groups p
     WHERE NOT EXISTS (SELECT FROM ff.edge_group g
                        WHERE (g.partition_key, g.downstream_eid)
                            = (p.partition_key, p.downstream_eid)
                          AND g.cancel_siblings_pending_flag)
     LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), dropped AS (
    DELETE FROM ff.pending_cancel_groups p USING idle
     WHERE (p.partition_key, p.flow_id, p.downstream_eid)
         = (idle.partition_key, idle.flow_id, idle.downstream_eid)
 RETURNING 1
)
SELECT count(*) AS moved FROM dropped
"""


async def reconcile_siblings(conn: Connection, limit: int = GROUPS_AT_ONCE) -> int:
    """Drop at most `limit` listings of groups that owe nothing."""
    return (await fetch_one(conn, RECONCILE_SIBLINGS, Moved, limit=limit)).moved
