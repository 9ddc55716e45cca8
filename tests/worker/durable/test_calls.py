"""Time, chance and restarts, as methods of the context."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from flowfabric import ConfigError, Ctx, LeaseLost, Retry, TransactionOpen
from flowfabric.errors import NestedDurableCall, WaitpointClosed
from flowfabric.testing import Clock
from flowfabric.worker.durable.waitpoints import HandlerWaitpoint
from tests.worker.durable.lab import Lab

pytestmark = pytest.mark.timeout(60)


async def test_now_is_the_clock_of_the_database_and_stays_what_it_was(
    lab: Lab, clock: Clock
) -> None:
    began = await clock.now()

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[datetime]:
        first = ctx.now()
        await ctx.sleep(60)
        return [first, ctx.now()]

    handle = await lab.submitted(job.call())
    await clock.advance(100)
    await lab.run()

    first, second = await handle.result(5)
    assert first == began
    assert second == began + timedelta(seconds=100)
    assert "now#0 done" in await lab.journal(handle)


async def test_chance_is_the_same_in_every_run_and_recorded_nowhere(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        lab.did.append((ctx.random(), ctx.random(), ctx.uuid(), ctx.uuid(key="a")))
        await ctx.sleep(60)

    handle = await lab.submitted(job.call())
    other = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    first = lab.did[0]
    assert sorted(lab.did, key=str) == sorted([first, first, lab.did[1], lab.did[1]], key=str)
    assert len({*first, *lab.did[1]}) == 8
    assert all(0 <= number < 1 for number in first[:2])
    assert await lab.journal(handle) == ["sleep#0 open"]
    assert await lab.state(other) == "completed"


# Restart.


async def test_the_children_of_a_handler_that_restarts_run_on(lab: Lab) -> None:
    @lab.app.task("child", lane="later")
    async def child(ctx: Ctx) -> None:
        lab.did.append("the child ran")

    @lab.app.task("job")
    async def job(ctx: Ctx, turn: int) -> str:
        if turn == 0:
            await ctx.spawn(child.call())
            await ctx.restart(1)
        return await ctx.wait_for_signal("go", type=str)

    handle = await lab.submitted(job.call(0))
    await lab.run(lanes=["later"])
    await lab.signal(handle, "go", "done")
    await lab.run()

    assert lab.did == ["the child ran"]
    assert await handle.result(5) == "done"


async def test_a_restart_begins_anew_with_other_arguments_and_an_empty_journal(
    lab: Lab,
) -> None:
    @lab.app.task("job", retry=Retry(max_retries=1))
    async def job(ctx: Ctx, round: int, total: int = 0) -> int:  # noqa: A002  plain
        async def work() -> str:
            return ctx.effect_key

        lab.did.append((round, await ctx.step("work", work), ctx.uuid()))
        if round < 3:
            await ctx.restart(round + 1, total=total + 10)
        return total

    handle = await lab.submitted(job.call(1))

    assert await handle.result(5) == 20
    assert [each[0] for each in lab.did] == [1, 2, 3]
    assert len({each[1] for each in lab.did}) == 3
    assert len({each[2] for each in lab.did}) == 3
    assert await lab.journal(handle) == ["mark#0 done", "work#0 done"]
    outcomes = [attempt.outcome for attempt in await handle.attempts()]
    assert outcomes == ["restarted", "restarted", "success"]


async def test_signals_that_were_not_consumed_survive_a_restart(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx, got: list[int]) -> list[int]:
        got = [*got, await ctx.wait_for_signal("number", type=int)]
        if len(got) < 3:
            await ctx.restart(got)
        return got

    handle = await lab.client.submit(job.call([]))
    for number in range(3):
        await lab.signal(handle, "number", number)
    await lab.run()

    assert await handle.result(5) == [0, 1, 2]


async def test_a_restart_closes_waitpoints_so_that_no_signal_is_accepted_in_vain(lab: Lab) -> None:
    await lab.seed_key()

    @lab.app.task("job")
    async def job(ctx: Ctx, turn: int) -> str:
        lab.did.append(await ctx.waitpoint("approve", expires=3600))
        if turn == 0:
            await ctx.restart(1)
        [signal] = await ctx.wait(lab.did[-1].any())
        return signal.signal_name

    async def answer(place: int) -> object:
        waitpoint: HandlerWaitpoint = lab.did[place]
        return await lab.client.signal(
            handle.execution_id, waitpoint.waitpoint_id, token=waitpoint.token, name="yes"
        )

    handle = await lab.submitted(job.call(0))
    with pytest.raises(WaitpointClosed):
        await answer(0)
    await answer(1)
    await lab.run()

    assert await handle.result(5) == "yes"


async def test_children_of_another_generation_are_others(lab: Lab) -> None:
    @lab.app.task("child")
    async def child(ctx: Ctx) -> str:
        return str(ctx.execution_id)

    @lab.app.task("job")
    async def job(ctx: Ctx, seen: list[str]) -> list[str]:
        seen = [
            *seen,
            *await ctx.gather([child.call()]),
            *await ctx.gather([child.call()], name="n"),
        ]
        if len(seen) < 4:
            await ctx.restart(seen)
        return seen

    handle = await lab.submitted(job.call([]))

    assert len(set(await handle.result(5))) == 4


@pytest.mark.direct("transactions of handlers need the database itself")
async def test_a_restart_inside_a_step_or_a_transaction_is_refused(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def work() -> None:
            with pytest.raises(NestedDurableCall):
                await ctx.restart()

        await ctx.step("work", work)
        await ctx.transaction()
        with pytest.raises(TransactionOpen):
            await ctx.restart()
        return "told"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "told"


async def test_a_task_in_a_child_process_has_no_durable_calls(lab: Lab) -> None:
    from tests.worker.durable import in_process

    lab.app = in_process.app
    for task in (in_process.steps, in_process.blocking_steps):
        handle = await lab.submitted(task.call())
        assert await lab.state(handle) == "failed"
        assert ConfigError.__name__ in (await lab.row(handle))["failure_reason"]


async def test_every_call_of_a_cancelled_handler_is_refused(lab: Lab) -> None:
    async def refused(ctx: Ctx) -> None:
        calls: list[Callable[[], object]] = [
            ctx.now,
            ctx.random,
            ctx.uuid,
            lambda: ctx.patched("audit"),
            lambda: ctx.sleep(1),
            lambda: ctx.step("work", int),
            lambda: ctx.wait_for_signal("go"),
        ]
        for call in calls:
            with pytest.raises(LeaseLost):
                call()
        lab.did.append("refused")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await handle.cancel()
        try:
            await asyncio.sleep(30)
        finally:
            await refused(ctx)

    handle = await lab.client.submit(job.call())
    await lab.run()

    assert lab.did == ["refused"]
