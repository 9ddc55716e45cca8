"""runnable(delayed) → runnable: executions whose delay is over are claimable."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.sql.queue import queued
from flowfabric.engine.lifecycle.sql.wake import wake_lanes

PROMOTE_DUE: Final[LiteralString] = (
    """
-- lifecycle.promote_due
WITH due AS (         -- the longest overdue first, passing over rows in use
    SELECT partition_key, execution_id FROM ff.exec_core
     WHERE delay_until_ms <= ff.now_ms() AND eligibility_state = 'not_eligible_until_time'
     ORDER BY delay_until_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
), promoted AS (
    UPDATE ff.exec_core e
       SET eligibility_state = 'eligible_now', blocking_reason = 'waiting_for_worker',
           blocking_detail = NULL, delay_until_ms = NULL, last_mutation_at_ms = ff.now_ms()
      FROM due WHERE (e.partition_key, e.execution_id) = (due.partition_key, due.execution_id)
 RETURNING e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms,
           e.deadline_at_ms, e.quota_key_id, e.budget_ids, e.eligibility_state
)"""
    + queued("promoted")
    + f"""
SELECT count(*) AS moved, {wake_lanes("promoted")} AS lanes FROM promoted
"""
)

DELAYS_DUE: Final[LiteralString] = """
-- lifecycle.delays_due
SELECT EXISTS (SELECT FROM ff.exec_core
                WHERE delay_until_ms <= ff.now_ms()
                  AND eligibility_state = 'not_eligible_until_time') AS due
"""


class _Due(msgspec.Struct, frozen=True):
    due: bool


class _Promoted(msgspec.Struct, frozen=True):
    moved: int
    lanes: int


async def promote_due(conn: Connection, limit: int) -> int:
    """At most `limit` executions whose delay is over are claimable, the longest overdue first."""
    return (await fetch_one(conn, PROMOTE_DUE, _Promoted, limit=limit)).moved


async def delays_due(conn: Connection) -> bool:
    """Is there an execution whose delay is over, also one that another transaction promotes now?"""
    return (await fetch_one(conn, DELAYS_DUE, _Due)).due
