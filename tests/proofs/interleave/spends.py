"""Budgets that two operations meet over: reports, spends, releases, resets, and the claim."""

from __future__ import annotations

from typing import Any

from flowfabric.budgets import budget_id
from flowfabric.db.transaction import transact
from flowfabric.engine.budgets.release_budget import release_spend
from flowfabric.engine.budgets.reset_budgets import reset_budgets
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.unblock_budgets import unblock_budgets
from flowfabric.policy import ExecutionPolicy
from flowfabric.testing import Clock
from tests.proofs.interleave.operations import CLAIM, Operation, cancel_execution, swept
from tests.proofs.interleave.scene import Scene
from tests.proofs.interleave.situations import WORKER, Situation, created

BUDGET = "b"
POLICY = ExecutionPolicy(budget_ids=(BUDGET,))


async def _budget(engine: Engine, scene: Scene, used: int) -> None:
    """10 tokens a minute, of which x has spent 3."""
    await engine.create_budget(
        BUDGET, dimensions=["tokens"], hard_limits=[10], soft_limits=[0], reset_interval=60
    )
    await engine.record_spend(BUDGET, scene.id("x"), {"tokens": 3, "calls": 1})
    await engine.report_usage_admin(BUDGET, ["tokens"], [used - 3])


async def nearly_spent(engine: Engine, clock: Clock, scene: Scene) -> None:
    """One more report fits, and the budget is due to be reset; x waits."""
    await created(engine, scene, policy=POLICY)
    await _budget(engine, scene, 8)
    await clock.advance(61)


async def out_of_budget(engine: Engine, clock: Clock, scene: Scene) -> None:
    """The budget is spent and due to be reset; x is held back."""
    await created(engine, scene, policy=POLICY)
    await _budget(engine, scene, 10)
    assert await engine.claim(WORKER, ttl=30) == []
    await clock.advance(61)


async def unlimited(engine: Engine, _clock: Clock, scene: Scene) -> None:
    """Nobody has created the budget."""
    await created(engine, scene, policy=POLICY)
    await engine.record_spend(BUDGET, scene.id("x"), {"tokens": 3})


SPEND_SITUATIONS = tuple(
    Situation(build.__name__, build) for build in (nearly_spent, out_of_budget, unlimited)
)


def release_spend_of_x(engine: Engine, scene: Scene, _side: int) -> Any:
    pairs = [(budget_id(BUDGET), scene.id("x"))]
    return transact(engine.pool, "release_spend", lambda conn: release_spend(conn, pairs))


SPENDS = (
    CLAIM,
    Operation(
        "report_usage",
        lambda engine, _, side: engine.report_usage_admin(
            BUDGET, ["calls", "tokens"], [1, 2], dedup_key=f"side {side}"
        ),
    ),
    Operation(
        "report_usage once",
        lambda engine, _scene, _side: engine.report_usage_admin(
            BUDGET, ["tokens"], [1], dedup_key="once"
        ),
    ),
    Operation(
        "record_spend x",
        lambda engine, scene, _: engine.record_spend(
            BUDGET, scene.id("x"), {"tokens": 1, "pages": 1}
        ),
    ),
    Operation("release_spend x", release_spend_of_x),
    swept("reset_budgets", reset_budgets),
    swept("unblock_budgets", unblock_budgets),
    Operation(
        "reset_budget", lambda engine, _scene, _side: engine.reset_budget(BUDGET), atomic=False
    ),
    Operation(
        "update_budget_limits",
        lambda engine, _, side: engine.update_budget_limits(
            BUDGET, hard_limits={"tokens": 20 + side}
        ),
        atomic=False,
    ),
    cancel_execution("x"),
)
