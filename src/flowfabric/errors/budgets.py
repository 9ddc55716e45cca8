"""Budgets refuse the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flowfabric.errors.base import RetryClass
from flowfabric.errors.state import StateError

if TYPE_CHECKING:
    from uuid import UUID

BUDGET_HARD_BREACH: Final = "budget_hard_breach"
"""The category of a failure because a budget is spent."""


class BudgetExceeded(StateError):
    """The usage would pass a hard limit of the budget, so nothing was counted; stop the work.

    A handler that does not catch it fails with the category `budget_hard_breach`, without a retry
    unless the task names this class in `retry_on`.
    """

    code = "budget_exceeded"
    retry_class = RetryClass.COOPERATIVE
    category = BUDGET_HARD_BREACH

    def __init__(
        self, budget: UUID | str, *, dimension: str, current_usage: int, hard_limit: int
    ) -> None:
        super().__init__(
            f"budget {budget}: {current_usage} of {hard_limit} {dimension} are used, and the report"
            " would pass the limit"
        )
        self.budget, self.dimension = budget, dimension
        self.current_usage, self.hard_limit = current_usage, hard_limit
