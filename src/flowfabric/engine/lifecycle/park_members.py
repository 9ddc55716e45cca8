"""any non-terminal member → the same: a cancelled flow lists the members that it is about to end.

A runnable member is parked, so that no worker claims it before it ends. A member that runs or is
suspended stays as it is, and is parked if it is requeued.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.lifecycle.sql.queue import dequeued
from flowfabric.ids import ExecutionId, id_columns

PARK_MEMBERS: Final[LiteralString] = (
    """
-- lifecycle.park_members
WITH seen AS (
    SELECT e.partition_key, e.execution_id, e.lifecycle_phase, e.route_id, e.priority,
           e.created_at_ms
      FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
           AS named (partition_key, execution_id)
      JOIN ff.execution e USING (partition_key, execution_id)
     WHERE e.lifecycle_phase <> 'terminal'
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
)"""
    + dequeued("seen")
    + """, grants_deleted AS (
    DELETE FROM ff.claim_grant g USING seen
     WHERE (g.partition_key, g.execution_id) = (seen.partition_key, seen.execution_id)
)
SELECT partition_key, execution_id FROM seen
 WHERE lifecycle_phase = 'runnable' OR %(also_running)s
 ORDER BY execution_id
"""
)


class _Parked(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def park_members(
    conn: Connection, members: Sequence[ExecutionId], *, also_running: bool
) -> list[ExecutionId]:
    """Those of the locked members that are to end, by id; no runnable one is claimable any more.

    A member that has ended is left out, and with `also_running=False` one that runs.
    """
    rows = await fetch_all(
        conn, PARK_MEMBERS, _Parked, also_running=also_running, **id_columns(members)
    )
    return [ExecutionId(row.partition_key, row.execution_id) for row in rows]
