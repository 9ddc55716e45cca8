"""runnable(blocked by budget) → runnable: the budgets of the executions have room again."""

from __future__ import annotations

import random
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.lifecycle.sql.queue import queued
from flowfabric.engine.lifecycle.sql.wake import wake_lanes

SETS: Final = 200
"""How many sets of budgets one call looks at."""

# Executions are found by the set of budgets that they are attached to: those of a budget that is
# still spent, however many, do not hide the others. With more sets than one call looks at, calls
# begin at a random place. A claim looks at the budgets again, and may block again.
UNBLOCK_BUDGETS: Final[LiteralString] = (
    """
-- lifecycle.unblock_budgets
WITH RECURSIVE sets (budget_ids, number) AS (   -- the next distinct set, again and again
    (SELECT budget_ids, 1 FROM ff.exec_core
      WHERE exceptional_state = 'blocked_by_budget' AND budget_ids >= %(start)s::uuid[]
      ORDER BY budget_ids LIMIT 1)
     UNION ALL
    SELECT following.budget_ids, sets.number + 1
      FROM sets CROSS JOIN LATERAL (
           SELECT e.budget_ids FROM ff.exec_core e
            WHERE e.exceptional_state = 'blocked_by_budget' AND e.budget_ids > sets.budget_ids
            ORDER BY e.budget_ids LIMIT 1) AS following
     WHERE sets.number < %(sets)s
), roomy AS MATERIALIZED (
    SELECT budget_ids FROM sets
     WHERE (%(budget_id)s::uuid IS NULL OR %(budget_id)s::uuid = ANY (budget_ids))
       AND NOT EXISTS (SELECT FROM ff.spent_budgets(budget_ids))
), found AS (         -- passing over rows in use
    SELECT e.partition_key, e.execution_id
      FROM roomy CROSS JOIN LATERAL (
           SELECT c.partition_key, c.execution_id FROM ff.exec_core c
            WHERE c.exceptional_state = 'blocked_by_budget' AND c.budget_ids = roomy.budget_ids
              AND c.blocking_reason = 'waiting_for_budget'
            ORDER BY c.priority DESC, c.created_at_ms, c.execution_id
            LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED) AS e
     LIMIT %(limit)s
), unblocked AS (
    UPDATE ff.exec_core e
       SET eligibility_state = 'eligible_now', blocking_reason = 'waiting_for_worker',
           blocking_detail = NULL, last_mutation_at_ms = ff.now_ms()
      FROM found
     WHERE (e.partition_key, e.execution_id) = (found.partition_key, found.execution_id)
 RETURNING e.partition_key, e.execution_id, e.route_id, e.priority, e.created_at_ms,
           e.deadline_at_ms, e.quota_key_id, e.budget_ids, e.eligibility_state
)"""
    + queued("unblocked")
    + f"""
SELECT (SELECT count(*) FROM unblocked) AS moved, {wake_lanes("unblocked")} AS lanes,
       (SELECT count(*) FROM sets) AS sets
"""
)


class _Unblocked(msgspec.Struct, frozen=True):
    moved: int
    lanes: int
    sets: int


async def unblock_budgets(conn: Connection, limit: int, budget_id: UUID | None = None) -> int:
    """At most `limit` executions whose budgets have room are claimable; how many.

    With `budget_id` only those that are attached to this budget.
    """
    whole = await _unblock(conn, limit, budget_id, [])
    if whole.sets < SETS:
        return whole.moved
    start = [UUID(int=random.getrandbits(128))] if budget_id is None else [budget_id]
    return whole.moved + (await _unblock(conn, limit, budget_id, start)).moved


async def _unblock(
    conn: Connection, limit: int, budget_id: UUID | None, start: list[UUID]
) -> _Unblocked:
    return await fetch_one(
        conn,
        UNBLOCK_BUDGETS,
        _Unblocked,
        limit=limit,
        budget_id=budget_id,
        start=start,
        sets=SETS,
    )
