"""What an execution has spent of a budget is given back, by its handler."""

from __future__ import annotations

from uuid import UUID

from flowfabric.budgets import budget_id as id_of
from flowfabric.db.pool import Pool
from flowfabric.db.transaction import run
from flowfabric.engine.budgets.release_budget import BudgetReleased, release_spend
from flowfabric.engine.budgets.unblock_spent import unblock_spent
from flowfabric.ids import ExecutionId, check_type


async def give_back(pool: Pool, budget_id: UUID | str, execution_id: ExecutionId) -> BudgetReleased:
    """As `release_budget`, without an operator event: the work itself has decided.

    Raises `ValidationError(invalid_input)`.
    """
    budget = id_of(budget_id)
    check_type(execution_id, ExecutionId, field="execution_id")
    pairs = [(budget, execution_id)]
    released = await run(pool, "give_back", lambda conn: release_spend(conn, pairs))
    if released:
        await unblock_spent(pool, budget)
    return BudgetReleased(budget_id=budget, released=released.get(budget, {}))
