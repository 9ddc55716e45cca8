"""The operations of `Engine` on budgets."""

from __future__ import annotations

from flowfabric.engine.budgets import (
    create_budget,
    get_budget_status,
    give_back,
    list_budgets,
    list_held_back,
    list_own_spend,
    list_spend,
    read_attached,
    read_budget_history,
    read_budget_usage_and_limits,
    record_spend,
    release_budget,
    report_usage,
    report_usage_admin,
    reset_budget,
    update_budget_limits,
)
from flowfabric.engine.operation import procedure, snapshot, statement, transaction


class BudgetOperations:
    """A part of `Engine`, which says how each operation runs."""

    create_budget = transaction(create_budget.create_budget)
    update_budget_limits = procedure(update_budget_limits.update_budget_limits)
    report_usage = statement(report_usage.report_usage)
    report_usage_admin = transaction(report_usage_admin.report_usage_admin)
    record_spend = statement(record_spend.record_spend)
    release_budget = procedure(release_budget.release_budget)
    give_back = procedure(give_back.give_back)
    reset_budget = procedure(reset_budget.reset_budget)
    get_budget_status = statement(get_budget_status.get_budget_status)
    list_budgets = statement(list_budgets.list_budgets)
    list_spend = statement(list_spend.list_spend)
    list_own_spend = statement(list_own_spend.list_own_spend)
    list_held_back = statement(list_held_back.list_held_back)
    read_attached = snapshot(read_attached.read_attached)
    read_budget_history = statement(read_budget_history.read_budget_history)
    read_budget_usage_and_limits = statement(
        read_budget_usage_and_limits.read_budget_usage_and_limits
    )
