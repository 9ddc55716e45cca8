"""Handlers that ended are replayed: what was done stays done, what ended them is tried again."""

import asyncio
from typing import Any

import msgspec
import pytest

from flowfabric import Ctx, Fail, StepFailed
from flowfabric.testing import Clock
from flowfabric.worker.durable.journal import AttemptJournal
from tests.worker.durable.lab import Lab
from tests.worker.facts import count, eventually

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def work(lab: Lab) -> Any:
    """A step that notes its name; one that ends with `!` fails for good, the first time."""

    async def run(name: str) -> str:
        lab.did.append(name)
        if name.endswith("!") and lab.did.count(name) == 1:
            raise Fail("not today", retryable=False)
        return name

    return run


async def test_a_sleep_that_was_over_is_not_slept_again(lab: Lab, clock: Clock, work: Any) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        await ctx.sleep("nap", 3600)
        await ctx.step("mail", work, "mail")
        return await ctx.step("ship", work, "ship!")

    handle = await lab.submitted(job.call())
    await clock.advance(3600)
    await lab.run()
    assert await lab.state(handle) == "failed"

    await handle.replay()
    await lab.run()

    assert await handle.result(5) == "ship!"
    assert lab.did == ["mail", "ship!", "ship!"]


async def test_a_child_that_was_spawned_and_not_awaited_is_found_again(lab: Lab, work: Any) -> None:
    @lab.app.task("child")
    async def child(ctx: Ctx) -> str:
        lab.did.append("child")
        return "grown"

    async def child_ended() -> None:  # else it is cancelled with its parent, and runs again
        await eventually(lambda: count(lab.db, "completed"))

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        spawned = await ctx.spawn(child.call())
        await ctx.step("await the child", child_ended)
        await ctx.step("mail", work, "mail")
        await ctx.step("ship", work, "ship!")
        return await spawned.result()

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "failed"

    await handle.replay()
    await lab.run()

    assert await handle.result(5) == "grown"
    assert sorted(lab.did) == ["child", "mail", "ship!", "ship!"]


async def test_a_step_that_failed_before_others_is_tried_again_and_those_stay_done(
    lab: Lab, clock: Clock, work: Any
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        try:
            paid = await ctx.step("pay", work, "pay!")
        except StepFailed:
            await ctx.step("tell", work, "tell")
            raise
        await ctx.step("tell", work, "told")
        await ctx.sleep("nap", 3600)
        return paid

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "failed"
    assert lab.did == ["pay!", "tell"]

    await handle.replay()
    await lab.run()
    await clock.advance(3600)
    await lab.run()

    assert await handle.result(5) == "pay!"
    assert lab.did == ["pay!", "tell", "pay!"]


async def test_what_is_new_in_another_branch_waits_until_it_has_been_tried_again(
    lab: Lab, work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    init, goes_on = AttemptJournal.__init__, asyncio.Event()

    def impatient(journal: AttemptJournal, attempt: Any, settings: Any, *more: Any) -> None:
        init(journal, attempt, msgspec.structs.replace(settings, replay_patience=0.1), *more)

    monkeypatch.setattr(AttemptJournal, "__init__", impatient)

    async def pay() -> str:
        lab.did.append("pay")
        if lab.did.count("pay") == 1:
            raise Fail("not today", retryable=False)
        await goes_on.wait()
        return "paid"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def paying() -> str:
            try:
                return await ctx.step("pay", pay)
            finally:
                await ctx.step("tell", work, "tell")

        async def shipping() -> None:
            if lab.did.count("pay") > 0 and "tell" in lab.did:
                await ctx.step("ship", work, "ship")

        paid, _ = await asyncio.gather(paying(), shipping())
        return paid

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "failed"

    await handle.replay()
    running = asyncio.create_task(lab.run())
    await eventually(lambda: lab.did.count("pay") == 2)
    await asyncio.sleep(0.3)  # longer than the patience
    goes_on.set()
    await running

    assert await handle.result(5) == "paid"
    assert lab.did == ["pay", "tell", "pay", "ship"]
