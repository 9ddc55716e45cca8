"""The results of a flow are those of the members that it was built with."""

import pytest

from flowfabric import AnyOf, App, Client, Ctx, Fail, FlowFailed, Quorum
from flowfabric.app.flow import Flow
from flowfabric.states import DerivedFlowState

pytestmark = pytest.mark.timeout(30)


async def test_children_that_a_member_started_have_no_place_in_the_results(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("square")
    async def square(ctx: Ctx, number: int) -> int:
        return number * number

    @app.task("sum")
    async def total(ctx: Ctx) -> int:
        spawned = await ctx.spawn(square.call(3))
        return sum(await ctx.gather([square.call(1), square.call(2)])) + await spawned.result()

    flow = Flow("sums")
    flow.add(square.call(5), name="before")
    flow.add(total.call(), name="total")
    handle = await client.start(flow)
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=10) == {"before": 25, "total": 14}
    children = [each for each in await handle.members() if each.is_child]
    assert [(each.name, each.execution_kind) for each in children] == [(None, "square")] * 3


async def test_the_flow_of_a_parent_outside_flows_has_the_result_of_the_parent(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("child")
    async def child(ctx: Ctx) -> int:
        return 1

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather([child.call()])

    handle = await client.submit(parent.call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    flow_id = (await handle.describe()).flow_id
    assert flow_id is not None
    found = await client.flow(flow_id).result(timeout=10)
    assert found == {str(handle.execution_id): [1]}


async def test_the_result_does_not_wait_for_work_that_nothing_needs(
    client: Client, ff_dsn: str
) -> None:
    app, elsewhere = App(), App()

    @app.task("quick")
    async def quick(ctx: Ctx) -> str:
        return "done"

    @elsewhere.task("slow", lane="elsewhere")
    async def slow(ctx: Ctx) -> None: ...

    flow = Flow("race")
    first, second = flow.add(quick.call(), name="first"), flow.add(slow.call(), name="second")
    third = flow.add(slow.call(), name="third").after(second)
    flow.add(quick.call(), name="last").after(first, third, policy=AnyOf("let_run"))
    handle = await client.start(flow)
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=10) == {"first": "done", "last": "done"}
    assert await handle.state() is DerivedFlowState.BLOCKED


async def test_a_failed_flow_names_the_causes_and_not_what_was_cancelled_for_them(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("work")
    async def work(ctx: Ctx, fails: bool) -> None:
        if fails:
            raise Fail("no", retryable=False)

    flow = Flow("votes")
    votes = [flow.add(work.call(True), name=name) for name in ("a", "b")]
    early = flow.add(work.call(False), name="early", lane="elsewhere")
    late = flow.add(work.call(False), name="late").after(early)
    flow.add(work.call(False), name="count").after(*votes, late, policy=Quorum(2))
    handle = await client.start(flow)
    await app.worker(dsn=ff_dsn).run_until_idle()

    with pytest.raises(FlowFailed) as failed:
        await handle.result(timeout=10)

    assert sorted(failed.value.members) == ["a: no", "b: no"]
    states = {each.name: each.public_state.value for each in await handle.members()}
    assert states == {
        "a": "failed", "b": "failed", "count": "skipped", "early": "cancelled", "late": "cancelled"
    }  # fmt: skip
