"""The SQL that writes the summary of a flow from its members."""

from __future__ import annotations

from typing import Final, LiteralString

PROJECTED: Final[LiteralString] = """, projected AS (
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
     CROSS JOIN LATERAL ff.flow_status(f.partition_key, f.flow_id,
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
"""Follows a CTE `wanted` with the keys of the flows."""
