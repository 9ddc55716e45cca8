"""suspended → the same: executions whose timeout has passed wait for an operator from now on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one
from flowfabric.engine.lifecycle.sql.by_key import execution_row, open_suspension
from flowfabric.ids import ExecutionId, id_columns

ESCALATE: Final[LiteralString] = f"""
-- lifecycle.escalate
WITH named AS (
    SELECT * FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
        AS named (partition_key, execution_id)
), escalated AS (
    UPDATE ff.exec_core e
       SET blocking_reason = 'paused_by_operator', last_mutation_at_ms = ff.now_ms()
      FROM named
     WHERE {execution_row("named.partition_key", "named.execution_id")}
       AND e.lifecycle_phase = 'suspended'
 RETURNING e.partition_key, e.execution_id
), disarmed AS (      -- the suspension stays open; signals still count
    UPDATE ff.suspension_current s
       SET reason_code = 'waiting_for_operator_review', timeout_at_ms = NULL,
           timeout_behavior = DEFAULT
      FROM escalated
     WHERE {open_suspension("escalated.partition_key", "escalated.execution_id")}
)
SELECT count(*) AS moved FROM escalated
"""


async def escalate(conn: Connection, executions: Sequence[ExecutionId]) -> int:
    """The suspended ones among these executions have no timeout any more; how many.

    They wait for an operator, or for the signals that they waited for. The caller holds the locks
    of `lock_executions`.
    """
    if not executions:
        return 0
    return (await fetch_one(conn, ESCALATE, Moved, **id_columns(executions))).moved
