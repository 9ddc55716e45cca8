"""What handlers use of budgets: counted once, held back, inherited, given back."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric import App, BudgetExceeded, Ctx, ExecutionFailed, Retry, ValidationError
from flowfabric.db.rows import Connection
from flowfabric.engine.budgets.read_budget_usage_and_limits import read_budget_usage_and_limits
from flowfabric.engine.budgets.release_lost_races import release_lost_races
from flowfabric.engine.budgets.usage import HardBreach, UsageAlreadyApplied, UsageCounted
from flowfabric.testing import Clock
from tests import given
from tests.worker.durable.lab import Lab
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
async def budget(lab: Lab) -> None:
    """Of 100 tokens."""
    await lab.client.budgets.create("b", hard={"tokens": 100})


async def used(lab: Lab, name: str = "b") -> int:
    return (await read_budget_usage_and_limits(lab.db, name)).usage.get("tokens", 0)


async def test_a_durable_handler_counts_each_call_once(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> None:
        lab.did.append(await ctx.use("b", tokens=1))
        tokens = await ctx.step("ask", lambda: 10)
        await ctx.use("b", {"tokens": tokens})
        await ctx.sleep(60)
        await ctx.use("b", tokens=20)
        if ctx.attempt_index == 0:
            raise OSError("the power is gone")

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    await handle.result(5)
    assert await used(lab) == 31
    assert lab.did == [UsageCounted()] * 3, "the answer is recorded"
    assert "use b#1 done" in await lab.journal(handle)


async def test_a_plain_handler_counts_again_when_its_work_is_done_again(lab: Lab) -> None:
    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    def job(ctx: Ctx) -> None:
        ctx.sync.use("b", tokens=3)
        ctx.sync.use("b", tokens=4)
        if ctx.attempt_index == 0:
            raise OSError("the power is gone")

    handle = await lab.submitted(job.call())

    await handle.result(5)
    assert await used(lab) == 14
    assert await lab.journal(handle) == []


async def test_a_call_in_a_step_counts_whenever_the_step_runs(lab: Lab) -> None:
    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> None:
        async def ask() -> None:
            await ctx.use("b", tokens=5)
            lab.did.append("asked")
            if len(lab.did) == 1:
                raise OSError("no answer")

        await ctx.step("ask", ask, retry=Retry(max_retries=1, initial=0))
        if ctx.attempt_index == 0:
            raise OSError("the power is gone")

    handle = await lab.submitted(job.call())

    await handle.result(5)
    assert (lab.did, await used(lab)) == (["asked"] * 2, 10)


async def test_a_dedup_key_counts_once_for_all(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        lab.did.append(await ctx.use("b", tokens=5, dedup="invoice 7"))

    for _ in range(2):
        await lab.submitted(job.call())

    assert lab.did == [UsageCounted(), UsageAlreadyApplied()]
    assert await used(lab) == 5


async def test_a_hard_breach_fails_the_handler_for_good(lab: Lab) -> None:
    @lab.app.task("job", retry=Retry(max_retries=3, initial=0))
    async def job(ctx: Ctx) -> None:
        await ctx.use("b", tokens=60)
        await ctx.use("b", tokens=60)

    handle = await lab.submitted(job.call())

    with pytest.raises(ExecutionFailed, match="60 of 100 tokens") as failed:
        await handle.result(5)
    assert failed.value.category == "budget_hard_breach"
    assert len(await handle.attempts()) == 1
    assert await used(lab) == 60


async def test_a_handler_gets_over_a_breach_the_same_way_whenever_it_runs(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[Any]:
        answer = await ctx.use("b", tokens=101, raise_on_hard=False)
        found: list[Any] = [isinstance(answer, HardBreach)]
        try:
            await ctx.use("b", tokens=102)
        except BudgetExceeded as error:
            found += [error.dimension, error.current_usage, error.hard_limit]
        await ctx.sleep(60)
        return found

    handle = await lab.submitted(job.call())
    await lab.client.budgets.limits("b", hard={"tokens": 1000})
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == [True, "tokens", 0, 100]
    assert await used(lab) == 0


async def test_work_is_attached_by_task_submit_flow_and_parent(lab: Lab) -> None:
    app, found = lab.app, dict[str, Any]()

    @app.task("child")
    async def child(ctx: Ctx, name: str) -> None:
        found[name] = ctx.execution_id

    @app.task("parent", budget=["b", "other"])
    async def parent(ctx: Ctx) -> None:
        found["parent"] = ctx.execution_id
        await ctx.gather([child.call("inherits")], budget=ctx.budgets)
        await ctx.gather([child.call("window")], budget=ctx.budgets, concurrency=1)
        await ctx.race(child.call("given"), budget="b")
        await ctx.spawn(child.call("alone"))

    flow = app.flow("f", budget="flow")
    flow.add(child.call("member"))
    flow.add(parent.partial(), name="both")
    await lab.client.submit(child.call("submitted"), budget=("x", "x"))
    await lab.client.submit_many([child.call("many")], budget="y")
    await lab.client.start(flow)
    await lab.run()

    budgets = {name: len(await _budgets(lab.db, each)) for name, each in found.items()}
    assert budgets == {
        "parent": 3,
        "inherits": 3,
        "window": 3,
        "given": 1,
        "alone": 0,
        "member": 1,
        "submitted": 1,
        "many": 1,
    }


async def _budgets(db: Connection, execution: Any) -> list[Any]:
    return (await given.row(db, execution))["budget_ids"] or []


async def test_attached_work_waits_for_the_next_period(lab: Lab, clock: Clock) -> None:
    await lab.client.budgets.create("daily", hard={"tokens": 5}, every=86_400)

    @lab.app.task("job", budget="daily")
    async def job(ctx: Ctx) -> None:
        await ctx.use("daily", tokens=5)

    handles = [await lab.client.submit(job.call()) for _ in range(2)]
    await lab.run(concurrency=1)
    assert sorted([await lab.state(each) for each in handles]) == ["completed", "rate_limited"]

    await lab.client.budgets.reset("daily")
    await lab.run()

    assert [await lab.state(each) for each in handles] == ["completed", "completed"]


async def test_losers_of_a_race_and_their_children_give_back_what_they_have_spent(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("racer")
    async def racer(ctx: Ctx, tokens: int) -> int:
        await ctx.spend("b", tokens=tokens)
        match tokens:
            case 1:
                await ctx.sleep(60)
            case 10:
                await ctx.gather([helper.call()])
            case _:
                await ctx.wait_for_signal("never")
        return tokens

    @lab.app.task("helper")
    async def helper(ctx: Ctx) -> None:
        await ctx.spend("b", tokens=50)
        await ctx.wait_for_signal("never")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> int:
        return await ctx.race(*racer.many([10, 20, 1]))

    handle = await lab.submitted(job.call())
    assert await used(lab) == 81
    await clock.advance(60)
    await lab.run()
    assert await handle.result(5) == 1

    async def given_back() -> bool:  # once the losers have ended, which may be after the race
        await release_lost_races(lab.db, 100)
        return await used(lab) == 1

    await eventually(given_back)
    ledger = "SELECT unsettled FROM ff.budget_usage_by_exec"
    assert [row["unsettled"] for row in await lab.db.fetch(ledger)] == [False]


async def test_a_handler_gives_back_what_it_has_spent(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> dict[str, int]:
        await ctx.spend("b", tokens=10)
        await ctx.use("b", tokens=1)
        return (await ctx.give_back("b")).released

    assert await (await lab.submitted(job.call())).result(5) == {"tokens": 10}
    assert await used(lab) == 1


async def test_budgets_that_cannot_be_are_refused(lab: Lab) -> None:
    with pytest.raises(Exception, match="budget"):
        lab.app.task("job", budget=[7])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValidationError, match="budget"):
        App().flow("f", budget="")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await ctx.use("b", tokens=-1)

    handle = await lab.submitted(job.call())
    with pytest.raises(ExecutionFailed, match="tokens"):
        await handle.result(5)

    @lab.app.task("odd")
    async def odd(ctx: Ctx) -> None:
        for amounts, said in (({"tokens": 1}, "'tokens' is given twice"), (7, "dimensions 7")):
            with pytest.raises(ValidationError, match=said):
                await ctx.use("b", amounts, tokens=2)  # pyright: ignore[reportArgumentType]
        for key in ("\u00e4" * 512, "a\nb", "x" * 1024):
            lab.did.append(await ctx.use("b", tokens=1, dedup=key))

    await (await lab.submitted(odd.call())).result(5)
    assert lab.did == [UsageCounted()] * 3, "every key that a budget takes"
    with pytest.raises(ValidationError, match="budget_ids"):
        await lab.client.submit(job.call(), budget=[str(each) for each in range(33)])
    for change in (lab.client.budgets.create, lab.client.budgets.limits):
        for wrong in ({"hard": {"a": -1}}, {"soft": 5}, {"every": -1}, {"mode": "lax"}):
            [name] = wrong
            with pytest.raises(ValidationError, match=f"invalid_input: {name}"):
                await change("b", **{"hard": {}, **wrong})  # pyright: ignore
