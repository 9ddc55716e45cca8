"""The budgets of a database: create, change, report, reset, read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from flowfabric.budgets import check_amounts
from flowfabric.engine.budgets.create_budget import (
    BudgetAlreadySatisfied,
    BudgetCreated,
    check_interval,
    check_mode,
)
from flowfabric.ids import ExecutionId
from flowfabric.states import EnforcementMode

if TYPE_CHECKING:
    from flowfabric.client.client import Client
    from flowfabric.engine.budgets.list_budgets import BudgetPage
    from flowfabric.engine.budgets.release_budget import BudgetReleased
    from flowfabric.engine.budgets.reset_budget import BudgetReset
    from flowfabric.engine.budgets.status import BudgetStatus
    from flowfabric.engine.budgets.update_budget_limits import BudgetLimitsChanged
    from flowfabric.engine.budgets.usage import UsageOutcome


class Budgets:
    """Budgets, each named by its id or by a name that stands for one."""

    def __init__(self, client: Client) -> None:
        self._client, self._engine = client, client.engine

    @property
    def _actor(self) -> str:
        return self._client.admin.actor

    async def create(
        self,
        budget: UUID | str,
        *,
        hard: Mapping[str, int],
        soft: Mapping[str, int] | None = None,
        every: float | timedelta = 0,
        mode: EnforcementMode | str = EnforcementMode.STRICT,
        scope_type: str = "global",
        scope_id: str | None = None,
    ) -> BudgetCreated | BudgetAlreadySatisfied:
        """The budget exists, with these limits by dimension; 0 is none.

        `every` is the length of a period, after which the usage is 0 again; 0: it never is. With
        `mode="warn"` nothing is refused or held back. `scope_type` and `scope_id` are labels; the
        second is the name unless given. Creating again changes nothing. Raises `ValidationError`.
        """
        hard_limits = check_amounts(hard, field="hard")
        soft_limits = check_amounts({} if soft is None else soft, field="soft")
        dimensions = list({**hard_limits, **soft_limits})
        check_interval(every, field="every")
        mode = check_mode(mode, field="mode")
        return await self._engine.create_budget(
            budget,
            dimensions=dimensions,
            hard_limits=[hard_limits.get(each, 0) for each in dimensions],
            soft_limits=[soft_limits.get(each, 0) for each in dimensions],
            enforcement_mode=mode,
            reset_interval=every,
            scope_type=scope_type,
            scope_id=(budget if isinstance(budget, str) else "") if scope_id is None else scope_id,
            actor=self._actor,
        )

    async def limits(
        self,
        budget: UUID | str,
        *,
        hard: Mapping[str, int] | None = None,
        soft: Mapping[str, int] | None = None,
        every: float | timedelta | None = None,
        mode: EnforcementMode | str | None = None,
    ) -> BudgetLimitsChanged:
        """The named dimensions have these limits, 0 for none; what is not given stays.

        Work that has room now can run at once. Raises `NotFound`, `ValidationError`.
        """
        if every is not None:
            check_interval(every, field="every")
        if mode is not None:
            mode = check_mode(mode, field="mode")
        return await self._engine.update_budget_limits(
            budget,
            hard_limits=None if hard is None else check_amounts(hard, field="hard"),
            soft_limits=None if soft is None else check_amounts(soft, field="soft"),
            reset_interval=every,
            enforcement_mode=mode,
            actor=self._actor,
        )

    async def report(
        self, budget: UUID | str, amounts: Mapping[str, int], *, dedup: str | None = None
    ) -> UsageOutcome:
        """Count usage, all or none; a breach is an answer, not an error.

        A report with `dedup` counts once in 24 hours. Raises `ValidationError`.
        """
        counted = check_amounts(amounts, field="amounts")
        return await self._engine.report_usage_admin(
            budget, list(counted), list(counted.values()), dedup_key=dedup, actor=self._actor
        )

    async def spend(
        self,
        budget: UUID | str,
        execution_id: ExecutionId | str,
        amounts: Mapping[str, int],
        *,
        dedup: str | None = None,
    ) -> UsageOutcome:
        """Count usage for an execution, so that `release` can give it back; as `report`."""
        return await self._engine.record_spend(
            budget, self._client.parse(execution_id), amounts, idempotency_key=dedup or ""
        )

    async def release(self, budget: UUID | str, execution_id: ExecutionId | str) -> BudgetReleased:
        """What the execution has spent is not counted any more; may be repeated."""
        return await self._engine.release_budget(
            budget, self._client.parse(execution_id), actor=self._actor
        )

    async def reset(self, budget: UUID | str) -> BudgetReset:
        """A new period begins now, with nothing used; raises `NotFound`."""
        return await self._engine.reset_budget(budget, actor=self._actor)

    async def status(self, budget: UUID | str) -> BudgetStatus:
        """Limits, usage and breaches of a budget; raises `NotFound`."""
        return await self._engine.get_budget_status(budget)

    async def list(self, *, cursor: str | None = None, limit: int = 100) -> BudgetPage:
        """The budgets of the database, page by page."""
        return await self._engine.list_budgets(cursor=cursor, limit=limit)
