"""any non-terminal member → the same: a cancelled flow lists the members that it is about to end.

A runnable member is parked, so that no worker claims it before it ends. A member that runs or is
suspended stays as it is, and is parked if it is requeued.
"""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.lock_members import LockedMember
from flowfabric.ids import ExecutionId

PARK_MEMBERS: Final[LiteralString] = """
-- lifecycle.park_members
WITH seen AS (
    SELECT partition_key, execution_id, lifecycle_phase FROM ff.exec_core
     WHERE partition_key = %(partition_key)s AND flow_id = %(flow_id)s
       AND lifecycle_phase <> 'terminal'
), marked AS (        -- a member that runs is parked when it is requeued
    UPDATE ff.exec_core e SET flow_cancelled = true
      FROM seen
     WHERE (e.partition_key, e.execution_id) = (seen.partition_key, seen.execution_id)
       AND seen.lifecycle_phase <> 'runnable'
), parked AS (
    UPDATE ff.exec_core e
       SET eligibility_state = 'blocked_by_operator', blocking_reason = 'paused_by_flow_cancel',
           blocking_detail = NULL, delay_until_ms = NULL, not_before_ms = NULL,
           resume_pending = false, flow_cancelled = true, last_mutation_at_ms = ff.now_ms()
      FROM seen
     WHERE (e.partition_key, e.execution_id) = (seen.partition_key, seen.execution_id)
       AND seen.lifecycle_phase = 'runnable'
), grants_deleted AS (
    DELETE FROM ff.claim_grant g USING seen
     WHERE (g.partition_key, g.execution_id) = (seen.partition_key, seen.execution_id)
)
SELECT execution_id FROM seen
 WHERE lifecycle_phase = 'runnable' OR %(also_running)s
 ORDER BY execution_id
"""


async def park_members(
    conn: Connection, partition_key: int, flow_id: UUID, *, also_running: bool
) -> list[ExecutionId]:
    """The locked members that are to end, by id; the runnable ones are no longer claimable."""
    rows = await fetch_all(
        conn,
        PARK_MEMBERS,
        LockedMember,
        partition_key=partition_key,
        flow_id=flow_id,
        also_running=also_running,
    )
    return [ExecutionId(partition_key, row.execution_id) for row in rows]
