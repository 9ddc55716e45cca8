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
_ROUNDS: Final = 20


async def unblock_spent(pool: Pool, budget_id: UUID) -> None:
    """Unblock up to 10,000 in transactions of their own, after the one that changed the budget.

    More than that are left for the sweep `unblock_budgets`. If a transaction fails it is logged:
    the change of the budget has happened, and the sweep finds the executions.
    """
    try:
        for _ in range(_ROUNDS):
            moved = await run(
                pool, "unblock_budgets", lambda conn: unblock_budgets(conn, _AT_ONCE, budget_id)
            )
            if moved < _AT_ONCE:
                return
    except FlowFabricError as error:
        log.warning("work that budget %s held back waits for the sweep: %s", budget_id, error)
