"""What is beside an execution that others than its holder end: grants, suspension, waitpoints."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.engine.lifecycle.sql.by_key import open_suspension, open_waitpoints

SUSPENSION_CLOSED: Final[LiteralString] = (
    """, suspension_closed AS ( -- nothing resumes the execution; if it never ran, it has none
    UPDATE ff.suspension_current s
       SET closed_at_ms = ff.now_ms(), timeout_at_ms = NULL, close_reason = %(close_reason)s
      FROM ended
     WHERE """
    + open_suspension("ended.partition_key", "ended.execution_id")
    + """ AND ended.last_epoch > 0
), waitpoints_closed AS (
    UPDATE ff.waitpoint_pending w
       SET state = 'closed', closed_at_ms = ff.now_ms(), close_reason = %(close_reason)s
      FROM ended
     WHERE """
    + open_waitpoints("ended.partition_key", "ended.execution_id")
    + """ AND ended.last_epoch > 0
)"""
)
"""Follows the CTEs of `end`, for executions without a grant. Has a parameter `close_reason`."""

CLOSED_BESIDE: Final[LiteralString] = (
    """, grants_deleted AS ( -- a grant of an execution that has ended is worth nothing
    DELETE FROM ff.claim_grant g USING ended
     WHERE (g.partition_key, g.execution_id) = (ended.partition_key, ended.execution_id)
)"""
    + SUSPENSION_CLOSED
)
"""The same for executions that may have one."""
