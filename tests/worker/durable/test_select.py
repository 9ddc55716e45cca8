"""The first of several: signals, a timer, children, waitpoints."""

import asyncio
from typing import Any

import pytest

from flowfabric import (
    ChildFailed,
    ConfigError,
    Ctx,
    Fail,
    SignalPayloadInvalid,
    SignalTimeout,
)
from flowfabric.errors import WaitpointClosed
from flowfabric.testing import Clock
from flowfabric.worker.durable.waitpoints import HandlerWaitpoint
from tests.worker.durable.lab import Lab
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(60)


async def selecting(lab: Lab) -> Any:
    """A handler that waits for a payment or for three days, and then for the other."""

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        first = await ctx.select(paid=ctx.signal_of("paid", int), late=ctx.timer(60))
        lab.did.append(first.name)
        await ctx.sleep(60)
        return [first.name, str(first.value)]

    return await lab.submitted(job.call())


async def test_a_signal_that_comes_first_wins(lab: Lab, clock: Clock) -> None:
    handle = await selecting(lab)
    assert await lab.detail(handle) == "waits for the first of paid, late"

    await lab.signal(handle, "paid", 42)
    await lab.run()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == ["paid", "42"]
    assert lab.did == ["paid", "paid"]


async def test_a_timer_that_is_over_first_wins_and_the_signal_stays_in_the_inbox(
    lab: Lab, clock: Clock
) -> None:
    handle = await selecting(lab)

    await clock.advance(61)
    await lab.signal(handle, "paid", 42)
    await lab.run()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == ["late", "None"]
    inbox = await lab.engine.read_inbox([handle.execution_id])
    assert [each.signal_name for each in inbox[handle.execution_id].signals] == ["paid"]


async def test_of_several_that_are_ready_the_first_named_wins(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        first = await ctx.select(b=ctx.signal_of("b"), a=ctx.signal_of("a"), now=ctx.timer(0))
        second = await ctx.select(now=ctx.timer(0), a=ctx.signal_of("a"))
        third = await ctx.select(a=ctx.signal_of("a"))
        return f"{first.name} {second.name} {third.name}"

    handle = await lab.client.submit(job.call())
    await lab.signal(handle, "a")
    await lab.signal(handle, "b")
    await lab.run()

    assert await handle.result(5) == "b now a"


async def test_a_child_that_ends_first_wins_and_others_run_on(lab: Lab) -> None:
    gate = asyncio.Event()

    @lab.app.task("child")
    async def child(ctx: Ctx, name: str) -> str:
        if name == "slow":
            await gate.wait()
        return name

    @lab.app.task("parent")
    async def parent(ctx: Ctx) -> list[str]:
        slow, quick = await ctx.spawn(child.call("slow")), await ctx.spawn(child.call("quick"))
        first = await ctx.select(slow=slow, quick=quick, go=ctx.signal_of("go"))
        lab.did.append(first.name)
        return [first.value, await slow.result()]

    handle = await lab.client.submit(parent.call())
    async with lab.app.worker(dsn=lab.dsn):
        await eventually(lambda: lab.did)
        gate.set()
        assert await handle.result(10) == ["quick", "slow"]


async def test_a_child_that_failed_raises(lab: Lab) -> None:
    @lab.app.task("child")
    async def child(ctx: Ctx) -> None:
        raise Fail("broken", retryable=False)

    @lab.app.task("parent")
    async def parent(ctx: Ctx) -> str:
        job = await ctx.spawn(child.call())
        with pytest.raises(ChildFailed):
            await ctx.select(job=job, late=ctx.timer(600))
        return "told"

    handle = await lab.submitted(parent.call())

    assert await handle.result(5) == "told"


async def test_waitpoints_are_arms_too(lab: Lab) -> None:
    await lab.seed_key()
    made: list[HandlerWaitpoint] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        made[:] = [await ctx.waitpoint("a", expires=600), await ctx.waitpoint("b", expires=600)]
        first = await ctx.select(
            yes=made[0].named("ok"), both=made[0].any() & made[1].any(), go=ctx.signal_of("go")
        )
        return [first.name, *(each.signal_name for each in first.value)]

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "suspended"
    for waitpoint, name in ((made[0], "hm"), (made[1], "well")):
        await lab.engine.deliver_signal(
            handle.execution_id, waitpoint.waitpoint_id, waitpoint.token, name
        )
        await lab.run()

    assert await handle.result(5) == ["both", "hm", "well"]


async def test_an_arm_whose_waitpoint_expires_is_not_waited_for_any_more(
    lab: Lab, clock: Clock
) -> None:
    await lab.seed_key()
    made: list[HandlerWaitpoint] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        made[:] = [await ctx.waitpoint("a", expires=60)]
        first = await ctx.select(yes=made[0].any(), go=ctx.signal_of("go", str))
        return f"{first.name} {first.value}"

    handle = await lab.submitted(job.call())
    [reason] = (await handle.explain()).reasons
    assert "('a#0' expires " in reason.message
    await clock.advance(60)
    await lab.run()

    [reason] = (await handle.explain()).reasons
    assert reason.message.startswith("waits for the first of yes, go since ")
    with pytest.raises(WaitpointClosed):
        await lab.engine.deliver_signal(
            handle.execution_id, made[0].waitpoint_id, made[0].token, "late"
        )
    await lab.signal(handle, "go", "now")
    await lab.run()
    assert await handle.result(5) == "go now"


async def test_a_select_of_waitpoints_that_have_all_expired_raises_in_every_run(
    lab: Lab, clock: Clock
) -> None:
    await lab.seed_key()

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        a, b = await ctx.waitpoint("a", expires=60), await ctx.waitpoint("b", expires=120)
        try:
            await ctx.select("door", a=a.any(), b=b.any())
        except SignalTimeout as error:
            lab.did.append(error.name)
        await ctx.sleep(60)
        return "told"

    handle = await lab.submitted(job.call())
    for _ in range(3):
        await clock.advance(60)
        await lab.run()

    assert await handle.result(5) == "told"
    assert lab.did == ["door", "door"]


async def test_a_payload_of_another_type_raises_in_every_run(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        try:
            await ctx.select(paid=ctx.signal_of("paid", int))
        except SignalPayloadInvalid:
            lab.did.append("told")
        await ctx.sleep(60)
        return "done"

    handle = await lab.client.submit(job.call())
    await lab.signal(handle, "paid", "many")
    await lab.run()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "done"
    assert lab.did == ["told", "told"]


async def test_arms_that_cannot_be_waited_for_are_refused(lab: Lab) -> None:
    @lab.app.task("child")
    async def child(ctx: Ctx) -> None: ...

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        detached = await ctx.spawn(child.call(), detached=True)
        body: Any = ctx.step("work", asyncio.sleep, 0)
        for arms in ({}, {"a": ctx.timer(1), "b": ctx.timer(2)}, {"d": detached}, {"s": body}):
            with pytest.raises(ConfigError):
                await ctx.select(**arms)
        await body
        return "told"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "told"


async def test_a_select_without_the_arm_that_won_is_a_divergence(lab: Lab, clock: Clock) -> None:
    arms = ["a"]

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await ctx.select(**{arms[0]: ctx.timer(0)})
        await ctx.sleep(60)

    handle = await lab.submitted(job.call())
    arms[0] = "b"
    await clock.advance(60)
    await lab.run()

    assert "without arm 'a'" in await lab.detail(handle)
