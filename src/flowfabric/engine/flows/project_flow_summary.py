"""Where flows stand, written down so that lists need not count members."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.ids import uuid_partition

_PROJECTED: Final[LiteralString] = """, projected AS (
    INSERT INTO ff.flow_summary AS s (
           partition_key, flow_id, total_members, sampled_members, members_completed,
           members_failed, members_cancelled, members_expired, members_skipped, members_active,
           members_suspended, members_waiting, members_delayed, members_rate_limited,
           members_waiting_children, public_flow_state, last_summary_update_at_ms)
    SELECT f.partition_key, f.flow_id, c.total, c.total, c.completed, c.failed, c.cancelled_members,
           c.expired, c.skipped, c.active, c.suspended, c.waiting, c.delayed, c.rate_limited,
           c.waiting_children, c.derived_state, ff.now_ms()
      FROM wanted
      JOIN ff.flow_core f USING (partition_key, flow_id)
     CROSS JOIN LATERAL ff.flow_standing(f.partition_key, f.flow_id,
                                         f.public_flow_state = 'cancelled') AS c
     WHERE c.total > 0 OR %(even_empty)s
        ON CONFLICT (partition_key, flow_id) DO UPDATE
       SET total_members = EXCLUDED.total_members, sampled_members = EXCLUDED.sampled_members,
           members_completed = EXCLUDED.members_completed,
           members_failed = EXCLUDED.members_failed,
           members_cancelled = EXCLUDED.members_cancelled,
           members_expired = EXCLUDED.members_expired,
           members_skipped = EXCLUDED.members_skipped, members_active = EXCLUDED.members_active,
           members_suspended = EXCLUDED.members_suspended,
           members_waiting = EXCLUDED.members_waiting, members_delayed = EXCLUDED.members_delayed,
           members_rate_limited = EXCLUDED.members_rate_limited,
           members_waiting_children = EXCLUDED.members_waiting_children,
           public_flow_state = EXCLUDED.public_flow_state,
           last_summary_update_at_ms = EXCLUDED.last_summary_update_at_ms
 RETURNING 1
)
SELECT count(*) AS moved FROM projected
"""

PROJECT_FLOW_SUMMARY: Final[LiteralString] = (
    """
-- flows.project_flow_summary
WITH wanted AS (
    SELECT %(partition_key)s::smallint AS partition_key, %(flow_id)s::uuid AS flow_id
)"""
    + _PROJECTED
)

PROJECT_UNSETTLED: Final[LiteralString] = (
    """
-- flows.project_unsettled
WITH wanted AS (      -- the longest untouched first, each at most every few seconds
    SELECT partition_key, flow_id FROM ff.flow_summary
     WHERE public_flow_state IN ('open', 'running', 'blocked')
       AND last_summary_update_at_ms <= ff.now_ms() - %(every_ms)s::bigint
     ORDER BY last_summary_update_at_ms LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)"""
    + _PROJECTED
)

EVERY_MS: Final = 10_000


LOCK_SUMMARY: Final[LiteralString] = """
-- flows.project_flow_summary: nobody else changes it meanwhile
SELECT count(*) AS moved
  FROM (SELECT FROM ff.flow_summary
         WHERE (partition_key, flow_id) = (%(partition_key)s, %(flow_id)s) FOR UPDATE) AS locked
"""


async def project_flow_summary(conn: Connection, flow_id: UUID, *, partitions: int = 256) -> bool:
    """The flow's summary is as its members are now; False where it has no members.

    Needs a transaction: the members are counted once nobody else changes the summary.
    """
    one = {"partition_key": uuid_partition(flow_id, partitions), "flow_id": flow_id}
    await fetch_one(conn, LOCK_SUMMARY, Moved, **one)
    projected = await fetch_one(conn, PROJECT_FLOW_SUMMARY, Moved, even_empty=False, **one)
    return projected.moved > 0


async def project_unsettled(conn: Connection, limit: int) -> int:
    """Bring at most `limit` summaries up to date whose flows have not come to an end."""
    return (
        await fetch_one(
            conn, PROJECT_UNSETTLED, Moved, limit=limit, every_ms=EVERY_MS, even_empty=True
        )
    ).moved
