"""The keys of durable calls: allotted when a call is made, the same whenever the handler runs."""

import asyncio
from typing import Any

import pytest

from flowfabric import Ctx, Retry
from flowfabric.errors import StepNeedsKey, ValidationError
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab

pytestmark = pytest.mark.timeout(60)


async def test_calls_of_one_name_are_numbered_in_the_order_in_which_they_are_made(
    lab: Lab,
) -> None:
    async def fetch(page: int) -> int:
        return page

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[int]:
        first, second = ctx.step("fetch", fetch, 1), ctx.step("fetch", fetch, 2)
        two = await second  # awaited the other way round
        return [await first, two]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == [1, 2]
    assert await lab.journal(handle) == ["fetch#1 done", "fetch#0 done"]


async def test_gathered_steps_find_their_results_whichever_ended_first(
    lab: Lab, clock: Clock
) -> None:
    async def fetch(page: int) -> int:
        await asyncio.sleep(0.05 * (3 - page))
        lab.did.append(page)
        return page * 10

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[int]:
        pages = await asyncio.gather(*[ctx.step("fetch", fetch, page) for page in range(3)])
        await ctx.sleep(60)
        return pages

    handle = await lab.submitted(job.call())
    assert lab.did == [2, 1, 0]
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == [0, 10, 20]
    assert lab.did == [2, 1, 0]


async def test_steps_in_a_task_group_have_their_keys_from_the_calls(lab: Lab, clock: Clock) -> None:
    async def fetch(page: int) -> int:
        lab.did.append(page)
        return page * 10

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.step("fetch", fetch, page)) for page in range(3)]
        await ctx.sleep(60)
        return [task.result() for task in tasks]

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == [0, 10, 20]
    assert lab.did == [0, 1, 2]


async def test_sibling_tasks_that_call_the_same_name_need_a_key(lab: Lab) -> None:
    async def fetch(page: int) -> int:
        await asyncio.sleep(0.02)
        return page

    @lab.app.task("job")
    async def job(ctx: Ctx, keyed: bool) -> list[Any]:
        async def branch(page: int) -> Any:
            return await ctx.step("fetch", fetch, page, key=f"p{page}" if keyed else None)

        found = await asyncio.gather(branch(1), branch(2), return_exceptions=True)
        return [type(each).__name__ if isinstance(each, StepNeedsKey) else each for each in found]

    without = await lab.submitted(job.call(False))
    keyed = await lab.submitted(job.call(True))

    assert await without.result(5) == [1, "StepNeedsKey"]
    assert await keyed.result(5) == [1, 2]
    assert sorted(await lab.journal(keyed)) == ["fetch:p1#0 done", "fetch:p2#0 done"]


async def test_tasks_one_after_the_other_need_no_key(lab: Lab) -> None:
    async def fetch(page: int) -> int:
        return page

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[int]:
        async def branch(page: int) -> int:
            return await ctx.step("fetch", fetch, page)

        return [await asyncio.create_task(branch(page)) for page in range(3)]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == [0, 1, 2]


async def test_a_task_may_make_calls_of_a_name_that_the_handler_itself_has_called(lab: Lab) -> None:
    async def fetch(page: int) -> int:
        return page

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[int]:
        async def branch() -> int:
            return await ctx.step("fetch", fetch, 2)

        first = await ctx.step("fetch", fetch, 1)
        return [first, *await asyncio.gather(branch())]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == [1, 2]
    assert await lab.journal(handle) == ["fetch#0 done", "fetch#1 done"]


async def test_instants_and_numbers_need_keys_in_sibling_tasks_too(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        async def branch(number: int, *, keyed: bool) -> str:
            key = f"b{number}" if keyed else None
            told = ""
            for call in (ctx.now, ctx.random):
                try:
                    call(key=key)
                except StepNeedsKey as error:
                    told += f"{error.name} "
                await asyncio.sleep(0.02)
            return told

        plain = await asyncio.gather(branch(1, keyed=False), branch(2, keyed=False))
        keyed = await asyncio.gather(branch(3, keyed=True), branch(4, keyed=True))
        return [*plain, *keyed]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == ["", "now random ", "", ""]


async def test_sleeps_waits_and_chance_need_keys_like_steps(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        async def branch(number: int, *, keyed: bool) -> str:
            key = f"b{number}" if keyed else None
            try:
                await ctx.sleep("nap", 0.02, key=key)
                return str(ctx.uuid(key=key))
            except StepNeedsKey as error:
                return error.name

        plain = await asyncio.gather(branch(1, keyed=False), branch(2, keyed=False))
        keyed = await asyncio.gather(branch(3, keyed=True), branch(4, keyed=True))
        return [plain[1], str(len({*keyed}))]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == ["nap", "2"]


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb"])
async def test_a_name_that_cannot_be_stored_is_refused_and_nothing_is_written(
    lab: Lab, name: str
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        with pytest.raises(ValidationError, match="name"):
            await ctx.step(name, asyncio.sleep, 0)
        with pytest.raises(ValidationError, match="key"):
            await ctx.step("fetch", asyncio.sleep, 0, key=name if "x" not in name else name * 2)
        return "told"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "told"
    assert await lab.journal(handle) == []


async def test_the_effect_key_is_the_same_in_every_try_and_attempt_and_differs_by_call(
    lab: Lab,
) -> None:
    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> None:
        async def charge() -> None:
            lab.did.append(ctx.effect_key)
            if len(lab.did) < 3:
                raise OSError("unreachable")

        await ctx.step("charge", charge, retry=Retry(max_retries=1, initial=0))
        await ctx.step("charge", charge)

    handle = await lab.submitted(job.call())
    again = await lab.submitted(job.call())

    assert await lab.state(handle) == "failed"  # its failure is recorded: not tried again
    assert len(set(lab.did[:2])) == 1
    assert len(set(lab.did)) == 1 + 2
    assert await lab.state(again) == "completed"


async def test_the_effect_key_is_the_same_in_the_next_attempt_and_another_from_the_start(
    lab: Lab,
) -> None:
    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> None:
        async def charge() -> None:
            lab.did.append((ctx.attempt_index, ctx.effect_key))
            if ctx.attempt_index == 0 and len(lab.did) == 1:
                raise OSError("unreachable")

        await ctx.step("charge", charge)

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "completed"
    await lab.engine.replay_execution(handle.execution_id, from_="start")
    await lab.run()

    (_, first), (attempt, second), (_, anew) = lab.did
    assert attempt == 1
    assert first == second != anew


async def test_there_is_no_effect_key_outside_a_step(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        return ctx.effect_key

    handle = await lab.submitted(job.call())

    assert await lab.state(handle) == "failed"
