"""runnable(blocked by dependencies) → runnable: the dependencies are satisfied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.sql.queue import queued
from flowfabric.engine.lifecycle.sql.wake import wake_lanes
from flowfabric.ids import ExecutionId, id_columns

PROMOTE_DEPENDENTS: Final[LiteralString] = (
    """
-- lifecycle.promote_dependents
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), seen AS (          -- locked in one order
    SELECT e.partition_key, e.execution_id, e.not_before_ms > ff.now_ms() AS early,
           e.eligibility_state, e.lifecycle_phase
      FROM ff.exec_core e JOIN named USING (partition_key, execution_id)
     ORDER BY e.partition_key, e.execution_id FOR NO KEY UPDATE OF e
), promoted AS (      -- unless something else blocks the execution
    UPDATE ff.exec_core e
       SET eligibility_state = CASE WHEN seen.early THEN 'not_eligible_until_time'
                                    ELSE 'eligible_now' END,
           blocking_reason = CASE WHEN seen.early THEN 'waiting_for_delay'
                                  ELSE 'waiting_for_worker' END,
           blocking_detail = NULL, not_before_ms = NULL,
           delay_until_ms = CASE WHEN seen.early THEN e.not_before_ms END,
           last_mutation_at_ms = ff.now_ms()
      FROM seen
     WHERE (e.partition_key, e.execution_id) = (seen.partition_key, seen.execution_id)
       AND seen.eligibility_state = 'blocked_by_dependencies'
 RETURNING e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms,
           e.deadline_at_ms, e.quota_key_id, e.budget_ids, e.eligibility_state
)"""
    + queued("promoted")
    + f""", noted AS (         -- an operator's block stays, and is the only one from now on
    UPDATE ff.exec_core e SET not_before_ms = NULL, last_mutation_at_ms = ff.now_ms()
      FROM seen
     WHERE (e.partition_key, e.execution_id) = (seen.partition_key, seen.execution_id)
       AND seen.eligibility_state = 'blocked_by_operator' AND e.not_before_ms IS NOT NULL
)
SELECT count(*) AS moved,
       EXISTS (SELECT FROM seen WHERE lifecycle_phase = 'suspended') AS suspended,
       {wake_lanes("promoted", where="eligibility_state = 'eligible_now'")} AS lanes
  FROM promoted
"""
)


class PromotedDependents(msgspec.Struct, frozen=True):
    """How many executions were promoted, and whether one of the others is suspended."""

    moved: int
    suspended: bool
    lanes: int


async def promote_dependents(
    conn: Connection, executions: Sequence[ExecutionId]
) -> PromotedDependents:
    """The held ones of the executions are claimable, or delayed until `not_before`.

    All of them are locked until the transaction ends.
    """
    return await fetch_one(conn, PROMOTE_DEPENDENTS, PromotedDependents, **id_columns(executions))
