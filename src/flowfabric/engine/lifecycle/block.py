"""runnable → runnable(blocked): admission holds executions back that waited for a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.engine.lifecycle.lock_executions import id_columns
from flowfabric.engine.lifecycle.sql.queue import dequeued
from flowfabric.ids import ExecutionId, clean_text
from flowfabric.states import BlockingReason, EligibilityState

BLOCK: Final[LiteralString] = (
    """
-- lifecycle.block
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), blocked AS (
    UPDATE ff.exec_core e
       SET eligibility_state = %(eligibility_state)s, blocking_reason = %(blocking_reason)s,
           blocking_detail = %(blocking_detail)s, delay_until_ms = NULL,
           last_mutation_at_ms = ff.now_ms()
      FROM named
     WHERE (e.partition_key, e.execution_id) = (named.partition_key, named.execution_id)
 RETURNING e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms
)"""
    + dequeued("blocked")
    + """
SELECT count(*) AS moved FROM blocked
"""
)


async def block(
    conn: Connection,
    executions: Sequence[ExecutionId],
    *,
    eligibility: EligibilityState,
    reason: BlockingReason,
    detail: str | None = None,
) -> None:
    """The executions cannot be claimed until they are unblocked; the caller holds their locks."""
    await execute(
        conn,
        BLOCK,
        eligibility_state=eligibility.value,
        blocking_reason=reason.value,
        blocking_detail=None if detail is None else clean_text(detail),
        **id_columns(executions),
    )
