"""What a handler uses of budgets, as methods of its context."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from flowfabric.budgets import OWN_BUDGETS, OwnBudgets, check_amounts
from flowfabric.errors import invalid_input
from flowfabric.worker.durable.usage import UsageCall

if TYPE_CHECKING:
    from flowfabric.engine.budgets.release_budget import BudgetReleased
    from flowfabric.engine.budgets.usage import UsageOutcome
    from flowfabric.worker.durable.durable import Durable


class BudgetCalls:
    """Reports to budgets. A call counts once, however often a durable handler runs.

    Inside the function of a step a call counts whenever the function runs. In a handler without
    durable calls it counts again with every attempt, as the work is done again. With `dedup` it
    counts once in 24 hours for the budget, also from other executions.
    """

    __slots__ = ()

    def _durable_calls(self) -> Durable:
        raise NotImplementedError

    async def _report(self, budget: UUID, amounts: dict[str, int], key: str) -> UsageOutcome:
        raise NotImplementedError

    async def _spend(self, budget: UUID, amounts: dict[str, int], key: str) -> UsageOutcome:
        raise NotImplementedError

    async def _release(self, budget: UUID | str) -> BudgetReleased:
        raise NotImplementedError

    @property
    def budgets(self) -> OwnBudgets:
        """The budgets of this execution, for its children: `ctx.gather(…, budget=ctx.budgets)`."""
        return OWN_BUDGETS

    def use(
        self,
        budget: UUID | str,
        amounts: Mapping[str, int] | None = None,
        /,
        *,
        dedup: str | None = None,
        raise_on_hard: bool = True,
        **more: int,
    ) -> Coroutine[Any, Any, UsageOutcome]:
        """Count what was used: `await ctx.use("agent", tokens=120)`.

        Amounts whose dimension is no Python name go into `amounts`. Raises `BudgetExceeded` if a
        hard limit would be passed; nothing is counted then. With `raise_on_hard=False` the answer
        is a `HardBreach`. Raises `ValidationError`.
        """
        given = _amounts(amounts, more)
        call = UsageCall(self._durable_calls, self._report, "use", budget, given, dedup)
        return call.outcome(raise_on_hard=raise_on_hard)

    def spend(
        self,
        budget: UUID | str,
        amounts: Mapping[str, int] | None = None,
        /,
        *,
        dedup: str | None = None,
        raise_on_hard: bool = True,
        **more: int,
    ) -> Coroutine[Any, Any, UsageOutcome]:
        """As `use`, for amounts that can be given back: by `give_back`, or by losing a race."""
        given = _amounts(amounts, more)
        call = UsageCall(self._durable_calls, self._spend, "spend", budget, given, dedup)
        return call.outcome(raise_on_hard=raise_on_hard)

    async def give_back(self, budget: UUID | str) -> BudgetReleased:
        """What this execution has spent of the budget by `spend` is not counted any more."""
        return await self._release(budget)


def _amounts(amounts: Mapping[str, int] | None, more: dict[str, int]) -> dict[str, int]:
    """Both together; raises `ValidationError` for a dimension that is in both."""
    given = {} if amounts is None else check_amounts(amounts)
    for name in more:
        if name in given:
            raise invalid_input("dimensions", name, "is given twice")
    return given | more
