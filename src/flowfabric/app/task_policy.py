"""The policy of a task, from its settings."""

from __future__ import annotations

from datetime import timedelta

from flowfabric.budgets import GivenBudgets, budget_names
from flowfabric.errors import invalid_input
from flowfabric.policy import ExecutionPolicy, TimeoutPolicy, milliseconds
from flowfabric.stored_policy import DEFAULT_RECLAIMS
from flowfabric.worker.durable.step import check_retry


def task_policy(
    retry: object,
    timeout: float | timedelta | None,
    deadline: float | timedelta | None,
    max_reclaims: int | None,
    budget: GivenBudgets | None = None,
) -> ExecutionPolicy | None:
    """The policy of a task with these settings; raises `ValidationError` if one is not valid."""
    budgets = budget_names(budget)
    if retry is timeout is deadline is max_reclaims is None and not budgets:
        return None
    limits = None
    if timeout is not None or deadline is not None:
        limits = TimeoutPolicy(
            attempt_timeout=_limit("timeout", timeout),
            execution_deadline=_limit("deadline", deadline),
        )
    allowed = check_retry(retry)
    return ExecutionPolicy(
        retry_policy=None if allowed is None else allowed.policy,
        timeout_policy=limits,
        max_reclaim_count=DEFAULT_RECLAIMS if max_reclaims is None else max_reclaims,
        budget_ids=budgets,
    )


def _limit(setting: str, given: float | timedelta | None) -> float | None:
    """A time limit in seconds; raises `ValidationError` that names the task's setting."""
    if given is None:
        return None
    limit = milliseconds(given, field=setting)
    if limit < 0:
        raise invalid_input(setting, given, "must not be negative")
    if limit == 0:
        raise invalid_input(setting, given, "must be at least a millisecond; None means no limit")
    return limit / 1000
