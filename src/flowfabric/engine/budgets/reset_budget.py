"""A new period of a budget begins now."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.budgets import budget_id as id_of
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.db.transaction import transact
from flowfabric.engine.budgets.lock_budget_as_seen import lock_budget_as_seen
from flowfabric.engine.budgets.unblock_spent import unblock_spent
from flowfabric.engine.lifecycle.operator_event import DEFAULT_ACTOR, check_actor, operator_event
from flowfabric.errors import NotFound
from flowfabric.instants import epoch_ms, instant
from flowfabric.states import OperatorEventType

RESET_BUDGET: Final[LiteralString] = """
-- budgets.reset_budget
SELECT next_reset_at_ms, period_no
  FROM ff.reset_budgets(ARRAY[%(budget_id)s]::uuid[], false, %(now_ms)s::bigint)
"""


class BudgetReset(msgspec.Struct, frozen=True, kw_only=True):
    """The usage is 0; a periodic budget is reset again at `next_reset_at`."""

    budget_id: UUID
    next_reset_at: datetime | None
    period_no: int


class _Reset(msgspec.Struct, frozen=True):
    next_reset_at_ms: int | None
    period_no: int


async def reset_budget(
    pool: Pool,
    budget_id: UUID | str,
    *,
    now: datetime | None = None,
    reason: str | None = None,
    expected_last_mutation_at: datetime | None = None,
    actor: str = DEFAULT_ACTOR,
) -> BudgetReset:
    """The usage of every dimension is 0, and the last breach is forgotten; the counts stay.

    Work that the budget held back can be claimed at once. An operator event is written. Raises
    `NotFound`, `ValidationError`, and `StaleView` for a budget that was changed after
    `expected_last_mutation_at`.
    """
    budget = id_of(budget_id)
    check_actor(actor)

    async def reset(conn: Connection) -> BudgetReset:
        await lock_budget_as_seen(conn, budget, seen_at=expected_last_mutation_at)
        row = await fetch_maybe(
            conn,
            RESET_BUDGET,
            _Reset,
            budget_id=budget,
            now_ms=None if now is None else epoch_ms(now),
        )
        if row is None:
            raise NotFound("budget", budget_id)
        await operator_event(
            conn,
            OperatorEventType.BUDGET_RESET,
            actor=actor,
            reason=reason,
            budget_id=str(budget),
            new_period_no=row.period_no,
        )
        return BudgetReset(
            budget_id=budget,
            next_reset_at=instant(row.next_reset_at_ms),
            period_no=row.period_no,
        )

    done = await transact(pool, "reset_budget", reset)
    await unblock_spent(pool, budget)
    return done
