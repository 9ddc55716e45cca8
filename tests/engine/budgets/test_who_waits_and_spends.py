"""Who spends of a budget, and whom it holds back."""

from __future__ import annotations

from flowfabric.budgets import budget_id
from flowfabric.engine import Engine, HeldBackPage, OwnSpend
from flowfabric.policy import ExecutionPolicy, RetryPolicy
from tests import given


async def test_a_spent_budget_names_what_it_holds_back_and_who_has_spent(engine: Engine) -> None:
    await engine.create_budget("b", dimensions=["tokens"], hard_limits=[10], soft_limits=[0])
    policy = ExecutionPolicy(budget_ids=("b",), retry_policy=RetryPolicy(max_retries=2))
    made = [given.new(execution_kind="a", policy=policy, priority=priority) for priority in (0, 5)]
    [low, high] = await engine.create_execution(made)
    await engine.record_spend("b", low.execution_id, {"tokens": 10})
    assert await engine.list_held_back("b") == HeldBackPage(count=0, executions=[])

    assert await engine.claim(given.WORKER, ttl=30, limit=5) == []

    page = await engine.list_held_back("b", limit=1)
    assert page.count == 2
    assert [each.execution_id for each in page.executions] == [high.execution_id]
    applied = await engine.read_policy(low.execution_id)
    assert applied.budget_ids == [budget_id("b")]
    assert (applied.policy.retry_policy, applied.replays_left) == (RetryPolicy(max_retries=2), 10)
    assert await engine.list_own_spend(high.execution_id) == []
    assert await engine.list_own_spend(low.execution_id) == [
        OwnSpend(budget_id=budget_id("b"), dimension="tokens", amount=10)
    ]
