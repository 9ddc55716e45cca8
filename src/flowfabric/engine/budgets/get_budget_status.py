"""One budget: its limits, its usage and its breaches."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

from flowfabric.budgets import budget_id as id_of
from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.budgets.status import STATUS_COLUMNS, BudgetStatus, StoredBudget
from flowfabric.errors import NotFound

GET_BUDGET_STATUS: Final[LiteralString] = f"""
-- budgets.get_budget_status
SELECT {STATUS_COLUMNS}
  FROM ff.budget_policy p
 WHERE (p.partition_key, p.budget_id)
     = (ff.budget_partition(%(budget_id)s::uuid), %(budget_id)s::uuid)
"""


async def get_budget_status(conn: Connection, budget_id: UUID | str) -> BudgetStatus:
    """The budget at one moment; raises `NotFound`, `ValidationError(invalid_input)`."""
    budget = id_of(budget_id)
    row = await fetch_maybe(conn, GET_BUDGET_STATUS, StoredBudget, budget_id=budget)
    if row is None:
        raise NotFound("budget", budget_id)
    return row.status()
