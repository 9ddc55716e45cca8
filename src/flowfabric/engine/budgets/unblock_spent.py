"""Executions that a budget held back can be claimed, right after there is room."""

from __future__ import annotations

import logging
from typing import Final
from uuid import UUID

from flowfabric.db.pool import Pool
from flowfabric.db.transaction import run
from flowfabric.engine.lifecycle.unblock_budgets import unblock_budgets
from flowfabric.errors import FlowFabricError

log: Final = logging.getLogger("flowfabric.engine")
_AT_ONCE: Final = 500


async def unblock_spent(pool: Pool, budget_id: UUID) -> None:
    """Unblock in a transaction of its own, after the one that changed the budget.

    If that fails it is logged: the change of the budget has happened, and the sweep
    `unblock_budgets` finds the executions.
    """
    try:
        await run(pool, "unblock_budgets", lambda conn: unblock_budgets(conn, _AT_ONCE, budget_id))
    except FlowFabricError as error:
        log.warning("work that budget %s held back waits for the sweep: %s", budget_id, error)
