"""An operator closes the waitpoint that a handler waits for: the handler is told."""

import asyncio
from typing import Any

import pytest

from flowfabric import Ctx, SignalTimeout
from flowfabric.testing import Clock
from flowfabric.worker.durable.waitpoints import HandlerWaitpoint
from tests.worker.durable.doors import close, deliver, waiting
from tests.worker.durable.lab import Lab

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("seeded")]

CLOSED = "'wait' cannot come any more: its waitpoint was closed (nobody answers)"


async def test_a_suspended_wait_raises_what_says_so_in_every_run(lab: Lab, clock: Clock) -> None:
    made: list[HandlerWaitpoint] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        made[:] = [await ctx.waitpoint("a", expires=6000)]
        try:
            await ctx.wait(made[0].any(), timeout=600)
        except SignalTimeout as error:
            lab.did.append((error.name, error.closed, str(error)))
        await ctx.sleep(60)
        return "told"

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "suspended"

    assert await close(lab, handle, made[0])
    await lab.run()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "told"
    assert lab.did == [("wait", "nobody answers", CLOSED)] * 2


async def test_a_timeout_is_not_told_as_a_close(lab: Lab, clock: Clock) -> None:
    handle, _ = await waiting(lab, lambda a: a.any(), expires=(60,))
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == ["'wait' did not come in time"]


@pytest.mark.parametrize(
    ("on_timeout", "state", "reason"),
    [
        ("fail", "failed", "suspension_timeout:fail"),
        ("cancel", "cancelled", "suspension_timeout_cancel"),
        ("expire", "expired", "suspension_timeout_expire"),
    ],
)
async def test_a_close_ends_the_execution_as_a_timeout_would(
    lab: Lab, on_timeout: Any, state: str, reason: str
) -> None:
    handle, [a, _] = await waiting(lab, lambda a, _: a.any(), on_timeout=on_timeout)
    await close(lab, handle, a)
    await lab.run()

    row = await lab.row(handle)
    assert row["public_state"] == state
    assert reason in (row["failure_reason"], row["cancellation_reason"])


@pytest.mark.parametrize("escalated", [False, True])
async def test_an_operator_who_closes_has_decided_and_no_other_is_asked(
    lab: Lab, clock: Clock, escalated: bool
) -> None:
    handle, [a, _] = await waiting(lab, lambda a, _: a.any(), timeout=60, on_timeout="escalate")
    if escalated:
        await clock.advance(60)
        await lab.run()
        assert (await lab.row(handle))["blocking_reason"] == "paused_by_operator"
    await close(lab, handle, a)
    await lab.run()

    assert await handle.result(5) == [CLOSED]


async def test_what_had_come_counts_and_the_rest_is_waited_for(lab: Lab) -> None:
    handle, [a, b] = await waiting(lab, lambda a, b: a.any() & b.any())
    await deliver(lab, handle, a, "first")
    assert await close(lab, handle, a)
    await lab.run()
    assert await lab.state(handle) == "suspended"
    await deliver(lab, handle, b, "second")
    await lab.run()

    assert await handle.result(5) == ["first ann", "second ann"]


async def test_a_select_waits_for_its_other_arms(lab: Lab) -> None:
    made: list[HandlerWaitpoint] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        made[:] = [await ctx.waitpoint("a", expires=6000)]
        first = await ctx.select(door=made[0].any(), paid=ctx.signal_of("paid", str))
        return f"{first.name} {first.value}"

    handle = await lab.submitted(job.call())
    assert await close(lab, handle, made[0])
    await lab.run()
    assert await lab.state(handle) == "suspended"
    await lab.signal(handle, "paid", "7 EUR")
    await lab.run()

    assert await handle.result(5) == "paid 7 EUR"


async def test_a_select_whose_waitpoints_are_all_closed_raises_what_says_so(
    lab: Lab, clock: Clock
) -> None:
    made: list[HandlerWaitpoint] = []

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        made[:] = [await ctx.waitpoint("a", expires=600), await ctx.waitpoint("b", expires=600)]
        try:
            await ctx.select(a=made[0].named("yes"), no=made[0].named("no"), b=made[1].any())
        except SignalTimeout as error:
            lab.did.append(error.closed)
        await ctx.sleep(60)
        return "told"

    handle = await lab.submitted(job.call())
    await close(lab, handle, made[0])
    await lab.run()
    assert await lab.state(handle) == "suspended"
    await close(lab, handle, made[1])
    await lab.run()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "told"
    assert lab.did == ["nobody answers"] * 2


async def test_a_wait_beside_a_running_step_is_told(lab: Lab) -> None:
    gate = asyncio.Event()

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str | None:
        waitpoint = await ctx.waitpoint("a", expires=6000)

        async def waiting() -> str | None:
            try:
                await ctx.wait(waitpoint.any())
            except SignalTimeout as error:
                return error.closed
            finally:
                gate.set()
            return "never"

        async def work() -> bool:
            assert not await close(lab, ctx, waitpoint)  # it runs: nobody has to wake it
            return await gate.wait()

        return (await asyncio.gather(waiting(), ctx.step("work", work)))[0]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "nobody answers"
    assert (await lab.row(handle))["lease_epoch"] == 1
