"""runnable(delayed) → runnable: named executions are claimable before their delay is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.sql.by_key import execution_row
from flowfabric.engine.lifecycle.sql.queue import queued
from flowfabric.engine.lifecycle.sql.wake import wake_lanes
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.states import PublicState

PROMOTE_DELAYED: Final[LiteralString] = (
    """
-- lifecycle.promote_delayed
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), delayed AS MATERIALIZED (
    SELECT e.partition_key, e.execution_id, e.delay_until_ms
      FROM named JOIN ff.exec_core e ON """
    + execution_row("named.partition_key", "named.execution_id")
    + """
     WHERE e.eligibility_state = 'not_eligible_until_time'
), promoted AS (
    UPDATE ff.exec_core e
       SET eligibility_state = 'eligible_now', blocking_reason = 'waiting_for_worker',
           blocking_detail = NULL, delay_until_ms = NULL, last_mutation_at_ms = ff.now_ms()
      FROM delayed
     WHERE """
    + execution_row("delayed.partition_key", "delayed.execution_id")
    + """
 RETURNING delayed.delay_until_ms AS old_delay_until_ms, e.partition_key, e.execution_id,
           e.route_id, e.priority, e.created_at_ms, e.deadline_at_ms, e.quota_key_id,
           e.budget_ids, e.eligibility_state,
           CASE WHEN e.resume_pending THEN 'resumable' ELSE 'waiting' END AS public_state
)"""
    + queued("promoted")
    + f"""
SELECT partition_key, execution_id, public_state, old_delay_until_ms,
       {wake_lanes("promoted")} AS lanes
  FROM promoted
"""
)


class PromotedEarly(msgspec.Struct, frozen=True):
    """The execution is claimable; it would have been delayed until `old_delay_until_ms`."""

    public_state: PublicState
    old_delay_until_ms: int


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    public_state: str
    old_delay_until_ms: int
    lanes: int


async def promote_delayed(
    conn: Connection, executions: Sequence[ExecutionId]
) -> dict[ExecutionId, PromotedEarly]:
    """The delayed ones among these executions are claimable now.

    The caller holds the locks of `lock_executions`.
    """
    rows = await fetch_all(conn, PROMOTE_DELAYED, _Row, **id_columns(executions))
    return {
        ExecutionId(row.partition_key, row.execution_id): PromotedEarly(
            PublicState(row.public_state), row.old_delay_until_ms
        )
        for row in rows
    }
