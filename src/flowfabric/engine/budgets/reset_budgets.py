"""Periodic budgets whose time has come begin a new period."""

from __future__ import annotations

from typing import Final, LiteralString

from flowfabric.db.rows import Connection, Moved, fetch_one

# One that a report has locked is waited for: reports are short. One that was reset meanwhile, by
# hand or by another process, is not due any more and is left alone.
RESET_BUDGETS: Final[LiteralString] = """
-- budgets.reset_budgets
SELECT count(*) AS moved
  FROM ff.reset_budgets(ARRAY(   -- the longest overdue first
           SELECT p.budget_id FROM ff.budget_policy p
            WHERE p.next_reset_at_ms <= ff.now_ms()
            ORDER BY p.next_reset_at_ms LIMIT %(limit)s), true)
"""


async def reset_budgets(conn: Connection, limit: int) -> int:
    """Reset at most `limit` budgets that are due; how many.

    Periods that were missed are not made up for: the next reset is one interval from now.
    """
    return (await fetch_one(conn, RESET_BUDGETS, Moved, limit=limit)).moved
