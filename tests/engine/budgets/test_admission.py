"""Work that is attached to a spent budget is held back at the claim, and comes back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from flowfabric.budgets import budget_id
from flowfabric.counters import BUDGET_HITS
from flowfabric.db.rows import Connection
from flowfabric.engine import Engine, ExecutionId, ExecutionPolicy
from flowfabric.engine.budgets.reset_budgets import reset_budgets
from flowfabric.engine.executions.explain_execution import explain_execution
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.unblock_budgets import unblock_budgets
from flowfabric.errors import ExecutionNotLeaseable, ValidationError
from flowfabric.testing import Clock
from tests import given
from tests.engine.quotas import limited

HELD = (
    "runnable",
    "blocked_by_budget",
    "waiting_for_budget",
    "none",
    "pending_first_attempt",
    "rate_limited",
)


async def budget(engine: Engine, name: str, *, used: int, hard: int = 10, **more: Any) -> None:
    await engine.create_budget(
        name,
        scope_id=name,
        dimensions=["tokens"],
        hard_limits=[hard],
        soft_limits=[0],
        **more,
    )
    await engine.report_usage_admin(name, ["tokens"], [used])


async def attached(db: Connection, *budgets: str, **fields: Any) -> ExecutionId:
    return await given.created(db, policy=ExecutionPolicy(budget_ids=budgets), **fields)


async def claimed(db: Connection, limit: int = 10) -> list[ExecutionId]:
    return [each.lease.execution_id for each in await claim(db, given.WORKER, ttl=9, limit=limit)]


async def test_spent_budgets_hold_work_back_and_nothing_else(
    engine: Engine, db: Connection
) -> None:
    await budget(engine, "spent", used=10)
    await budget(engine, "roomy", used=9)
    await budget(engine, "warns", used=10, enforcement_mode="warn")
    await budget(engine, "unlimited", used=10, hard=0)
    held = [await attached(db, "spent"), await attached(db, "roomy", "spent")]
    free = [
        await attached(db, "roomy"),
        await attached(db, "warns", "unlimited"),
        await attached(db, "nobody made this one"),
        await given.created(db),
    ]

    before = BUDGET_HITS.values[("tokens",)]
    assert await claimed(db) == free
    assert BUDGET_HITS.values[("tokens",)] - before == 2
    for each in held:
        assert await given.vector(db, each) == HELD
        detail = (await given.row(db, each))["blocking_detail"]
        assert detail == "budget spent: 10 of 10 tokens used"
    assert await claimed(db) == []


async def test_a_claim_logs_budgets_that_do_not_exist_by_name_and_each_once(
    engine: Engine, db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    missing, other = f"missing-{uuid4()}", str(uuid4())
    await budget(engine, "roomy", used=0)
    first = await attached(db, "roomy", missing)
    await attached(db, missing)
    second = await attached(db, other)
    await attached(db, "roomy")
    await given.created(db)

    assert len(await claimed(db)) == 5
    await attached(db, missing, other)
    assert len(await claimed(db)) == 1

    told = {each.getMessage() for each in caplog.records if each.name == "flowfabric.engine"}
    assert len(told) == 2
    assert {f"budget {missing!r} does not exist" in each for each in told} == {True, False}
    assert {str(first) in each or str(second) in each for each in told} == {True}


async def test_a_claim_by_id_logs_a_budget_that_does_not_exist(
    engine: Engine, db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    missing = f"missing-{uuid4()}"
    execution = await attached(db, missing)

    await engine.issue_grant_and_claim(execution, lane_id="default", lease_ttl=9)

    assert f"budget {missing!r} does not exist: execution {execution}" in caplog.text


async def test_many_that_are_held_back_do_not_hide_others(engine: Engine, db: Connection) -> None:
    await budget(engine, "spent", used=10)
    policy = ExecutionPolicy(budget_ids=("spent",))
    await create_execution(db, [given.new(policy=policy, priority=9) for _ in range(900)])
    other = await given.created(db)

    rounds = 0
    while not (found := await claimed(db, 1)):
        rounds += 1

    assert found == [other]
    assert rounds <= 3

    while await db.fetchval("SELECT count(*) FROM ff.ready"):
        assert await claimed(db) == []
    await engine.update_budget_limits("spent", hard_limits={"tokens": 20})
    assert await db.fetchval("SELECT count(*) FROM ff.ready") == 900, "all at once"


async def test_work_comes_back_with_a_reset_a_release_or_a_higher_limit(
    engine: Engine, db: Connection, ff_clock: Clock
) -> None:
    spender = ExecutionId.mint()
    await budget(engine, "b", used=4, reset_interval=60)
    await engine.record_spend("b", spender, {"tokens": 6})
    execution = await attached(db, "b", "other")
    for room in (
        engine.release_budget("b", spender),
        engine.update_budget_limits("b", hard_limits={"tokens": 20}),
        engine.reset_budget("b"),
    ):
        assert await claimed(db) == []
        assert await given.vector(db, execution) == HELD

        await room

        assert await given.public_state(db, execution) == "waiting"
        status = await engine.get_budget_status("b")
        left = status.hard_limits["tokens"] - status.usage["tokens"]
        await engine.report_usage_admin("b", ["tokens"], [left])

    assert await claimed(db) == []
    await ff_clock.advance(timedelta(minutes=1))
    assert (await unblock_budgets(db, 100), await reset_budgets(db, 20)) == (0, 1)
    assert await unblock_budgets(db, 100) == 1
    assert await claimed(db) == [execution]


async def test_the_sweep_finds_the_work_of_each_budget_behind_that_of_others(
    engine: Engine, db: Connection
) -> None:
    policy = ExecutionPolicy(budget_ids=("spent",))
    for name in ("spent", "other"):
        await budget(engine, name, used=10)
    await create_execution(db, [given.new(policy=policy) for _ in range(50)])
    last = await attached(db, "other")
    while await db.fetchval("SELECT count(*) FROM ff.ready"):
        assert await claimed(db) == []
    await db.execute(
        "UPDATE ff.budget_usage SET current_value = 0 WHERE budget_id = $1", budget_id("other")
    )

    assert await unblock_budgets(db, 10) == 1

    assert await claimed(db) == [last]


async def test_a_retry_is_admitted_again(engine: Engine, db: Connection) -> None:
    await budget(engine, "b", used=0)
    execution = await attached(db, "b")
    [held] = await claim(db, given.WORKER, ttl=9)
    await engine.report_usage_admin("b", ["tokens"], [10])

    await engine.release([held.lease])

    assert await claimed(db) == []
    assert (await given.row(db, execution))["eligibility_state"] == "blocked_by_budget"


async def test_claims_by_name_are_refused_and_no_grant_is_given(
    engine: Engine, db: Connection
) -> None:
    await engine.seed_waitpoint_hmac_secret("k1", "ab" * 32)
    await budget(engine, "b", used=0)
    execution = await attached(db, "b")
    worker: dict[str, Any] = {"worker_id": "w", "worker_instance_id": "w-1"}
    grant = await engine.claim_for_worker(lane_id="default", **worker)
    assert grant is not None
    await engine.report_usage_admin("b", ["tokens"], [10])

    with pytest.raises(ExecutionNotLeaseable, match="budget b is spent: 10 of 10 tokens"):
        await engine.claim_execution(execution, expected_attempt_index=0, lease_ttl=9, **worker)

    assert await engine.claim_for_worker(lane_id="default", **worker) is None


async def test_sql_attaches_by_the_policy_and_refuses_what_cannot_be(db: Connection) -> None:
    await db.fetchval("SELECT ff.submit('job', policy => $1)", '{"budget_ids": ["b", "a", "b"]}')

    assert await db.fetchval("SELECT budget_ids FROM ff.ready") == sorted(
        [budget_id("a"), budget_id("b")]
    )
    for wrong in ('"b"', "[1]", '[""]', str(["x"] * 33).replace("'", '"')):
        with pytest.raises(Exception, match="budget_ids"):
            await db.execute("SELECT ff.submit('job', policy => $1)", f'{{"budget_ids": {wrong}}}')
    for names in (("",), ("x" * 257,), ("x",) * 33, (1,)):
        with pytest.raises(ValidationError, match="budget_ids"):
            ExecutionPolicy(budget_ids=names)  # pyright: ignore[reportArgumentType]


async def test_budgets_come_before_limits(engine: Engine, db: Connection) -> None:
    await limited.limit(db, cap=1)
    await budget(engine, "spent", used=10)
    policy = ExecutionPolicy(budget_ids=("spent",))
    over = await limited.created(db, *"kkk", policy=policy, priority=9)
    free = await limited.created(db, *"kk")

    found = list[ExecutionId]()
    for _ in range(5):
        found += await claimed(db)
        await limited.unblock_keys(db, {limited.key("k")})

    assert found == free[:1], "one slot, which no execution without a budget has taken"
    assert await limited.states(db, over) == ["rate_limited"] * 3
    assert {(await given.row(db, each))["eligibility_state"] for each in over} == {
        "blocked_by_budget"
    }
    wakeups = await db.fetch("SELECT DISTINCT quota_key_id FROM ff.quota_wakeup")
    assert [row["quota_key_id"] for row in wakeups] == [limited.key("k")]


async def test_what_a_budget_holds_back_is_no_start_of_its_limit(
    engine: Engine, db: Connection
) -> None:
    await limited.limit(db, cap=1, rate=2, window=60)
    await budget(engine, "spent", used=10)
    await limited.created(db, "a", "b")
    running = await limited.claimed(db)  # one start of each key, of two
    await limited.ended(db, [each for each in running if each.quota_key_id == limited.key("b")])
    # A claim of one looks behind the first, whose key has no slot left, and finds the second.
    await limited.created(db, "a", priority=9)
    policy = ExecutionPolicy(budget_ids=("spent",))
    [over] = await limited.created(db, "b", priority=5, policy=policy)
    assert await claimed(db, 1) == []
    assert await given.vector(db, over) == HELD

    [free] = await limited.created(db, "b")

    assert await claimed(db, 1) == [free]


async def test_it_is_explained_which_budget_holds_back_how_many_come_first_and_until_when(
    engine: Engine, db: Connection, ff_clock: Clock
) -> None:
    await budget(engine, "a b", used=10, reset_interval=60)
    executions = [await attached(db, "a b") for _ in range(2)]
    resets = await ff_clock.now() + timedelta(minutes=1)
    await claimed(db)

    [reason, *_] = (await explain_execution(db, executions[1])).reasons

    assert reason.message.startswith("budget 'a b' used up: 10 of 10 tokens; it is reset at ")
    assert reason.message.endswith(", 1 is before it")
    assert reason.clears_at == resets
    assert "ff budgets limits 'a b' --hard tokens=N" in (reason.remedy or "")
    await db.execute("UPDATE ff.budget_usage SET current_value = 0")
    [reason, *_] = (await explain_execution(db, executions[1])).reasons
    assert reason.message == "a budget held it back, and its budgets have room again"
