"""suspended → terminal, runnable or suspended: the timeout of suspensions has passed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_one
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.sql.by_key import open_suspension
from flowfabric.engine.suspensions.apply_timeouts import DueSuspension, apply_timeouts
from flowfabric.ids import ExecutionId, id_columns

SUSPENSIONS_DUE: Final[LiteralString] = """
-- suspensions.suspensions_due
SELECT coalesce(min(timeout_at_ms) <= ff.now_ms(), false) AS any FROM ff.suspension_current
"""

FIND_TIMED_OUT: Final[LiteralString] = """
-- suspensions.expire_suspensions: those past their timeout, the longest overdue first
SELECT partition_key, execution_id FROM ff.suspension_current
 WHERE timeout_at_ms <= ff.now_ms()
 ORDER BY timeout_at_ms LIMIT %(limit)s
"""

# A signal, an operator or an end that came first has closed the suspension, or moved the execution.
STILL_TIMED_OUT: Final[LiteralString] = f"""
-- suspensions.still_due: those that are past their timeout under their locks
SELECT named.partition_key, named.execution_id, s.timeout_behavior, ff.now_ms() AS now_ms
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT s.timeout_behavior
         FROM ff.suspension_current s JOIN ff.exec_core e USING (partition_key, execution_id)
        WHERE {open_suspension("named.partition_key", "named.execution_id")}
          AND s.timeout_at_ms + 0 <= ff.now_ms() AND e.lifecycle_phase = 'suspended'
       OFFSET 0) AS s
"""


class _Any(msgspec.Struct, frozen=True):
    any: bool


class _Found(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID


async def suspensions_due(conn: Connection) -> bool:
    """Is there a suspension whose timeout has passed?"""
    return (await fetch_one(conn, SUSPENSIONS_DUE, _Any)).any


async def expire_suspensions(conn: Connection, limit: int) -> int:
    """Apply the timeouts of at most `limit` suspensions, the longest overdue first; how many.

    Executions that another transaction has locked are passed over. Needs a transaction.
    """
    found = await fetch_all(conn, FIND_TIMED_OUT, _Found, limit=limit)
    if not found:
        return 0
    named = [ExecutionId(row.partition_key, row.execution_id) for row in found]
    due = await still_due(conn, await lock_executions(conn, named, pass_over_locked=True))
    await apply_timeouts(conn, due)
    return len(due)


async def still_due(conn: Connection, executions: Sequence[ExecutionId]) -> list[DueSuspension]:
    """Those of the locked executions that are suspended past their timeout."""
    return await fetch_all(conn, STILL_TIMED_OUT, DueSuspension, **id_columns(executions))
