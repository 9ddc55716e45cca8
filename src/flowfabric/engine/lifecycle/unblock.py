"""runnable(blocked) → runnable: executions that admission held back go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lock_executions import id_columns
from flowfabric.engine.lifecycle.sql.queue import queued
from flowfabric.engine.lifecycle.sql.wake import wake_lanes
from flowfabric.ids import ExecutionId
from flowfabric.states import EligibilityState

UNBLOCK: Final[LiteralString] = (
    """
-- lifecycle.unblock
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), unblocked AS (     -- a member that was given an edge meanwhile waits for its upstreams now
    UPDATE ff.exec_core e
       SET eligibility_state = CASE WHEN e.not_before_ms IS NULL THEN 'eligible_now'
                                    ELSE 'blocked_by_dependencies' END,
           blocking_reason = CASE WHEN e.not_before_ms IS NULL THEN 'waiting_for_worker'
                                  ELSE 'waiting_for_children' END,
           blocking_detail = NULL, last_mutation_at_ms = ff.now_ms()
      FROM named
     WHERE (e.partition_key, e.execution_id) = (named.partition_key, named.execution_id)
 RETURNING e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms,
           e.deadline_at_ms, e.quota_key_id, e.budget_ids, e.eligibility_state
)"""
    + queued("unblocked")
    + f"""
SELECT partition_key, execution_id, eligibility_state,
       {wake_lanes("unblocked", where="eligibility_state = 'eligible_now'")} AS lanes
  FROM unblocked
"""
)


class _Unblocked(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    eligibility_state: str
    lanes: int


async def unblock(
    conn: Connection, executions: Sequence[ExecutionId]
) -> dict[ExecutionId, EligibilityState]:
    """The executions are claimable or wait for their upstreams; the caller holds their locks."""
    rows = await fetch_all(conn, UNBLOCK, _Unblocked, **id_columns(executions))
    return {
        ExecutionId(row.partition_key, row.execution_id): EligibilityState(row.eligibility_state)
        for row in rows
    }
