"""Periodic budgets whose time has come begin a new period."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

RESET_BUDGETS: Final[LiteralString] = """
-- budgets.reset_budgets
SELECT count(*) AS moved
  FROM ff.reset_budgets(ARRAY(   -- the longest overdue first, passing over those in use
           SELECT p.budget_id FROM ff.budget_policy p
            WHERE p.next_reset_at_ms <= ff.now_ms()
            ORDER BY p.next_reset_at_ms LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED), true)
"""

# One that was reset meanwhile, by hand or by another process, is not due any more and left alone.
RESET_BUSY_BUDGETS: Final[LiteralString] = """
-- budgets.reset_budgets: those in use, after a short wait
SELECT count(*) AS moved
  FROM ff.reset_budgets(ARRAY(
           SELECT budget_id FROM ff.try_lock_budgets(ARRAY(
               SELECT p.budget_id FROM ff.budget_policy p
                WHERE p.next_reset_at_ms <= ff.now_ms()
                ORDER BY p.next_reset_at_ms LIMIT %(limit)s))), true)
"""


async def reset_budgets(conn: Connection, limit: int) -> int:
    """Reset at most `limit` budgets that are due; how many.

    Periods that were missed are not made up for: the next reset is one interval from now. One that
    somebody keeps locked holds up no other, and is left for the next call.
    """
    moved = (await fetch_one(conn, RESET_BUDGETS, Moved, limit=limit)).moved
    if moved == limit:
        return moved
    return moved + (await fetch_one(conn, RESET_BUSY_BUDGETS, Moved, limit=limit - moved)).moved
