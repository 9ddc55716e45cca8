"""Calls for children as entries: by place or by name, decided once."""

import asyncio

import pytest

from flowfabric import ChildFailed, Ctx, Fail, Retry
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab, Statements

pytestmark = pytest.mark.timeout(60)


async def test_a_decided_join_is_an_entry_and_is_not_asked_for_again(
    lab: Lab, clock: Clock, statements: Statements
) -> None:
    @lab.app.task("child")
    async def child(ctx: Ctx, n: int) -> int:
        return n

    @lab.app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        found = await ctx.gather(child.many([1, 2]))
        found += await ctx.gather(child.many([3]))
        await ctx.sleep(60)
        return found

    handle = await lab.submitted(parent.call())
    assert await lab.journal(handle) == ["children#0 done", "children#1 done", "sleep#0 open"]
    statements.sent.clear()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == [1, 2, 3]
    assert statements.of("joins.read_join", "joins.spawn") == {}
    assert statements.sent["executions.read_outcomes"] <= 2  # one of them is the test's own


async def test_named_calls_may_change_their_order(lab: Lab, clock: Clock) -> None:
    order = ["a", "b"]

    @lab.app.task("child")
    async def child(ctx: Ctx, name: str) -> str:
        lab.did.append(name)
        return name

    @lab.app.task("parent")
    async def parent(ctx: Ctx) -> dict[str, str]:
        found = {}
        for name in order:
            [found[name]] = await ctx.gather([child.call(name)], name=name)
        await ctx.sleep(60)
        return found

    handle = await lab.submitted(parent.call())
    order.reverse()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == {"a": "a", "b": "b"}
    assert lab.did == ["a", "b"]


async def test_unnamed_calls_that_change_their_order_diverge(lab: Lab, clock: Clock) -> None:
    order = ["a", "b"]

    @lab.app.task("child")
    async def child(ctx: Ctx, name: str) -> str:
        return name

    @lab.app.task("parent")
    async def parent(ctx: Ctx) -> None:
        for name in order:
            await ctx.gather([child.call(name)])
        await ctx.sleep(60)

    handle = await lab.submitted(parent.call())
    order.reverse()
    await clock.advance(60)
    await lab.run()

    assert "children#0 with other arguments" in await lab.detail(handle)


async def test_a_failed_child_that_leaves_the_handler_is_not_recorded(lab: Lab) -> None:
    @lab.app.task("child")
    async def child(ctx: Ctx) -> None:
        raise Fail("broken", retryable=False)

    @lab.app.task("parent")
    async def parent(ctx: Ctx) -> None:
        await ctx.gather([child.call()])

    handle = await lab.submitted(parent.call())

    assert await lab.state(handle) == "failed"
    assert await lab.journal(handle) == ["children#0 open"]


async def test_a_failed_child_that_the_handler_gets_over_is_recorded_and_raises_again(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("child")
    async def child(ctx: Ctx) -> None:
        lab.did.append("child")
        raise Fail("broken", category="plumbing", retryable=False)

    @lab.app.task("parent")
    async def parent(ctx: Ctx) -> str:
        try:
            await ctx.gather([child.call()])
        except ChildFailed as error:
            lab.did.append(f"{error.category} {error.reason}")
        await ctx.sleep(60)
        return "over"

    handle = await lab.submitted(parent.call())
    assert await lab.journal(handle) == ["children#0 failed", "sleep#0 open"]
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "over"
    assert lab.did == ["child", "plumbing broken", "plumbing broken"]


async def test_a_replayed_parent_finds_the_child_that_was_mended(lab: Lab) -> None:
    broken = [True]

    @lab.app.task("child")
    async def child(ctx: Ctx, n: int) -> int:
        lab.did.append(n)
        if n == 2 and broken[0]:
            raise Fail("broken", retryable=False)
        return n

    @lab.app.task("parent", retry=Retry(max_retries=0))
    async def parent(ctx: Ctx) -> list[int]:
        [first] = await ctx.gather([child.call(1)])
        job = await ctx.spawn(child.call(2))
        return [first, await job.result()]

    handle = await lab.submitted(parent.call())
    assert await lab.state(handle) == "failed"
    broken[0] = False
    for execution_id in (await failed_children(lab), handle.execution_id):
        await lab.client.replay(execution_id)
        await lab.run()

    assert await handle.result(5) == [1, 2]
    assert lab.did == [1, 2, 2]


async def failed_children(lab: Lab) -> str:
    row = await lab.db.fetchrow(
        "SELECT partition_key, execution_id FROM ff.execution JOIN ff.route USING (route_id)"
        " WHERE execution_kind = 'child' AND public_state = 'failed'"
    )
    assert row is not None
    return f"{{fp:{row['partition_key']}}}:{row['execution_id']}"


async def test_children_beside_steps_in_branches(lab: Lab, clock: Clock) -> None:
    @lab.app.task("child")
    async def child(ctx: Ctx, n: int) -> int:
        return n

    async def work(n: int) -> int:
        lab.did.append(n)
        return n

    @lab.app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        async def branch(n: int) -> int:
            [got] = await ctx.gather([child.call(n)], name=f"branch-{n}")
            return await ctx.step("work", work, got, key=str(n))

        found = await asyncio.gather(*[branch(n) for n in range(4)])
        await ctx.sleep(60)
        return list(found)

    handle = await lab.submitted(parent.call())
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == [0, 1, 2, 3]
    assert sorted(lab.did) == [0, 1, 2, 3]
