"""What an execution has spent of a budget is given back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.db.transaction import run
from flowfabric.engine.budgets.unblock_spent import unblock_spent
from flowfabric.ids import ExecutionId, check_type

RELEASE_SPEND: Final[LiteralString] = """
-- budgets.release_spend
SELECT budget_id, dimension, released
  FROM ff.release_spend(%(budget_id)s::uuid[], %(execution_partition)s::smallint[],
                        %(execution_id)s::uuid[])
"""


class BudgetReleased(msgspec.Struct, frozen=True, kw_only=True):
    """What was subtracted from the usage, by dimension; empty if there was nothing."""

    budget_id: UUID
    released: dict[str, int]


class _Released(msgspec.Struct, frozen=True):
    budget_id: UUID
    dimension: str
    released: int


async def release_budget(
    pool: Pool, budget_id: UUID | str, execution_id: ExecutionId
) -> BudgetReleased:
    """What the execution has spent by `record_spend` in this period is not counted any more.

    Its ledger rows are deleted, so a second call changes nothing. What others have spent stays.
    Work that the budget held back can be claimed at once. Raises `ValidationError(invalid_input)`.
    """
    budget = id_of(budget_id)
    check_type(execution_id, ExecutionId, field="execution_id")
    pairs = [(budget, execution_id)]
    released = await run(pool, "release_budget", lambda conn: release_spend(conn, pairs))
    if released:
        await unblock_spent(pool, budget)
    return BudgetReleased(budget_id=budget, released=released.get(budget, {}))


async def release_spend(
    conn: Connection, spent: Sequence[tuple[UUID, ExecutionId]]
) -> dict[UUID, dict[str, int]]:
    """Give back what these executions have spent of these budgets; what, by budget."""
    rows = await fetch_all(
        conn,
        RELEASE_SPEND,
        _Released,
        budget_id=[budget for budget, _ in spent],
        execution_partition=[execution.partition_key for _, execution in spent],
        execution_id=[execution.uuid for _, execution in spent],
    )
    released: dict[UUID, dict[str, int]] = {}
    for row in rows:
        released.setdefault(row.budget_id, {})[row.dimension] = row.released
    return released
