"""What an execution has spent of a budget is given back, by an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.db.transaction import transact
from flowfabric.engine.budgets.unblock_spent import unblock_spent
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_events
from flowfabric.ids import ExecutionId, check_type
from flowfabric.states import OperatorEventType

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
    pool: Pool,
    budget_id: UUID | str,
    execution_id: ExecutionId,
    *,
    reason: str | None = None,
    actor: str = DEFAULT_ACTOR,
) -> BudgetReleased:
    """What the execution has spent by `record_spend` in this period is not counted any more.

    Its ledger rows are deleted, so a second call changes nothing. What others have spent stays.
    Work that the budget held back can be claimed at once. If something was given back, an operator
    event is written. Raises `ValidationError(invalid_input)`.
    """
    budget = id_of(budget_id)
    check_type(execution_id, ExecutionId, field="execution_id")
    check_actor(actor)

    async def release(conn: Connection) -> dict[str, int]:
        found = await release_spend(conn, [(budget, execution_id)])
        released = found.get(budget, {})
        if released:
            facts = {"budget_id": str(budget), "released": released}
            await operator_events(
                conn,
                OperatorEventType.BUDGET_RELEASED,
                {execution_id: facts},
                actor=actor,
                reason=reason,
            )
        return released

    released = await transact(pool, "release_budget", release)
    if released:
        await unblock_spent(pool, budget)
    return BudgetReleased(budget_id=budget, released=released)


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
