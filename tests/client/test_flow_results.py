"""The results of a flow are those of the members that it was built with."""

import pytest

from flowfabric import App, Client, Ctx, Fail, FlowFailed
from flowfabric.app.flow import Flow

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


async def test_a_failed_flow_is_replayed_and_gives_its_results(client: Client, ff_dsn: str) -> None:
    app = App()
    works: list[bool] = []

    @app.task("first")
    async def first(ctx: Ctx) -> int:
        if not works:
            raise Fail("closed", retryable=False)
        return 1

    @app.task("then")
    async def then(ctx: Ctx) -> int:
        return 2

    flow = Flow("pair")
    flow.add(then.call(), name="then").after(flow.add(first.call(), name="first"))
    handle = await client.start(flow)
    await app.worker(dsn=ff_dsn).run_until_idle()
    with pytest.raises(FlowFailed, match="first"):
        await handle.result(timeout=10)
    works.append(True)

    await (await handle.member("first")).replay(downstream=False)
    await app.worker(dsn=ff_dsn).run_until_idle()
    with pytest.raises(FlowFailed, match="then: skipped, although its upstreams have succeeded"):
        await handle.result(timeout=10)
    preview = await client.replay_flow(str(handle.flow_id), preview=True)
    answer = await handle.replay("open again")
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert [each.name for each in preview.run_again] == ["then"]
    assert answer.run_again == preview.run_again
    assert await handle.result(timeout=10) == {"first": 1, "then": 2}
