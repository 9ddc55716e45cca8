"""Waits for signals by name, and signals that a handler sends."""

import asyncio
from typing import Any

import msgspec
import pytest

from flowfabric import Ctx, SignalPayloadInvalid, SignalTimeout
from flowfabric.errors import TargetNotSignalable
from flowfabric.ids import ExecutionId
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(60)


async def _is(lab: Lab, handle: Any, state: str) -> bool:
    return await lab.state(handle) == state


class Approval(msgspec.Struct):
    by: str


async def test_a_signal_that_came_before_the_handler_ever_ran_is_kept_for_it(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        approval = await ctx.wait_for_signal("approved", type=Approval)
        return approval.by

    handle = await lab.client.submit(job.call())
    await lab.signal(handle, "approved", {"by": "ann"})
    await lab.run()

    assert await handle.result(5) == "ann"
    [entry] = await lab.entries(handle)
    assert (entry["kind"], entry["state"], entry["signal_seq"]) == ("signal", "done", 1)


async def test_a_signal_resumes_a_handler_that_is_suspended_for_it(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        lab.did.append("ran")
        return (await ctx.wait_for_signal("approved", type=Approval)).by

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "suspended"
    assert await lab.detail(handle) == "waits for signal 'approved'"
    await lab.signal(handle, "rejected", {"by": "bob"})
    await lab.run()
    assert lab.did == ["ran"]
    await lab.signal(handle, "approved", {"by": "ann"})
    await lab.run()

    assert await handle.result(5) == "ann"
    assert lab.did == ["ran", "ran"]


async def test_signals_of_one_name_are_consumed_in_their_order_and_each_once(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[int]:
        return [await ctx.wait_for_signal("number", type=int) for _ in range(4)]

    handle = await lab.client.submit(job.call())
    for number in (1, 2):
        await lab.signal(handle, "number", number)
    await lab.run()
    for number in (3, 4):
        await lab.signal(handle, "number", number)
        await lab.run()

    assert await handle.result(5) == [1, 2, 3, 4]


async def test_two_branches_that_wait_for_one_name_each_get_a_signal(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[int]:
        waits = [ctx.wait_for_signal("number", type=int) for _ in range(2)]
        return list(await asyncio.gather(*waits))

    handle = await lab.submitted(job.call())
    await lab.signal(handle, "number", 1)
    await lab.run()
    assert await lab.state(handle) == "suspended"
    await lab.signal(handle, "number", 2)
    await lab.run()

    assert await handle.result(5) == [1, 2]


async def test_a_signal_that_comes_too_late_is_not_taken_by_the_wait_that_timed_out(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        try:
            await ctx.wait_for_signal("approved", timeout=60)
        except SignalTimeout as error:
            lab.did.append(error.name)
        return await ctx.wait_for_signal("approved", type=str)

    handle = await lab.submitted(job.call())
    await clock.advance(61)
    await lab.signal(handle, "approved", "late")
    await lab.run()

    assert await handle.result(5) == "late"
    assert lab.did == ["approved"]
    assert await lab.journal(handle) == ["approved#0 failed", "approved#1 done"]


async def test_a_signal_that_came_in_time_counts_although_the_handler_runs_later(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        return await ctx.wait_for_signal("approved", type=str, timeout=60)

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.signal(handle, "approved", "in time")
    await clock.advance(600)
    await lab.run()

    assert await handle.result(5) == "in time"


async def test_a_default_is_returned_instead_of_a_timeout_in_every_run(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        answer = await ctx.wait_for_signal("approved", timeout=60, default="nobody")
        lab.did.append(answer)
        await ctx.sleep(60)
        return answer

    handle = await lab.submitted(job.call())
    for _ in range(2):
        await clock.advance(60)
        await lab.run()

    assert await handle.result(5) == "nobody"
    assert lab.did == ["nobody", "nobody"]


async def test_a_payload_of_another_type_is_consumed_and_the_handler_may_wait_again(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        for _ in range(2):
            with pytest.raises(SignalPayloadInvalid) as told:
                await ctx.wait_for_signal("approved", type=Approval)
            lab.did.append(f"{told.value.name} {told.value.wanted}")
        by = (await ctx.wait_for_signal("approved", type=Approval)).by
        await ctx.sleep(60)
        return by

    handle = await lab.client.submit(job.call())
    await lab.signal(handle, "approved", 17)
    await lab.signal(handle, "approved")  # without a payload
    await lab.signal(handle, "approved", {"by": "ann"})
    await lab.run()
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "ann"
    assert lab.did == ["approved Approval"] * 4


async def test_a_signal_between_the_read_of_the_inbox_and_the_park_is_not_missed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        lab.did.append("ran")
        return await ctx.wait_for_signal("approved", type=str)

    handle = await lab.client.submit(job.call())
    original = type(lab.engine).suspend

    async def suspend(engine: Any, requests: Any) -> Any:
        if len(lab.did) == 1 and "signalled" not in lab.did:
            lab.did.append("signalled")
            await lab.signal(handle, "approved", "just now")
        return await original(engine, requests)

    monkeypatch.setattr(type(lab.engine), "suspend", suspend)
    await lab.run()

    assert await handle.result(5) == "just now"
    assert lab.did == ["ran", "signalled"]
    assert (await lab.row(handle))["lease_epoch"] == 1


async def test_a_signal_wakes_a_wait_whose_attempt_is_kept_up_by_a_step(lab: Lab) -> None:
    gate = asyncio.Event()

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def waiting() -> str:
            answer = await ctx.wait_for_signal("approved", type=str)
            gate.set()
            return answer

        answer, _ = await asyncio.gather(waiting(), ctx.step("work", gate.wait))
        return answer

    handle = await lab.client.submit(job.call())
    async with lab.app.worker(dsn=lab.dsn):
        await eventually(lambda: _is(lab, handle, "active"))
        await lab.signal(handle, "approved", "ann")
        assert await handle.result(10) == "ann"

    assert (await lab.row(handle))["lease_epoch"] == 1


async def test_a_wait_beside_a_running_step_times_out_only_if_no_signal_came_in_time(
    lab: Lab,
) -> None:
    began = asyncio.Event()

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        async def work() -> None:
            began.set()
            await asyncio.sleep(1.0)

        waits = ctx.wait_for_signal("approved", type=str, timeout=0.6, default="nobody")
        never = ctx.wait_for_signal("other", type=str, timeout=0.3, default="nobody")
        answers = await asyncio.gather(waits, never, ctx.step("work", work))
        return [str(each) for each in answers]

    handle = await lab.client.submit(job.call())
    async with lab.app.worker(dsn=lab.dsn):
        await began.wait()
        await lab.signal(handle, "approved", "ann")
        assert await handle.result(10) == ["ann", "nobody", "None"]


# Sending.


async def test_a_signal_from_a_handler_arrives_once_however_often_the_handler_runs(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("receiver")
    async def receiver(ctx: Ctx) -> str:
        return (await ctx.wait_for_signal("go", type=Approval)).by

    @lab.app.task("sender")
    async def sender(ctx: Ctx, target: str) -> str:
        await ctx.signal(ExecutionId.parse(target), "go", Approval("ann"))
        await ctx.sleep(60)
        return "sent"

    receiving = await lab.submitted(receiver.call())
    sending = await lab.submitted(sender.call(str(receiving.execution_id)))
    await clock.advance(60)
    await lab.run()

    assert await receiving.result(5) == "ann"
    assert await sending.result(5) == "sent"
    assert (await lab.row(receiving))["signal_seq"] == 1
    assert await lab.journal(sending) == ["signal:go#0 done", "sleep#0 open"]


async def test_a_signal_that_is_refused_raises_the_same_in_every_run(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("ended")
    async def ended(ctx: Ctx) -> None: ...

    @lab.app.task("sender")
    async def sender(ctx: Ctx, target: str) -> str:
        try:
            await ctx.signal(ExecutionId.parse(target), "go")
        except TargetNotSignalable as error:
            lab.did.append(str(error))
        await ctx.sleep(60)
        return "told"

    over = await lab.submitted(ended.call())
    sending = await lab.submitted(sender.call(str(over.execution_id)))
    await clock.advance(60)
    await lab.run()

    assert await sending.result(5) == "told"
    assert len(lab.did) == 2
    assert len(set(lab.did)) == 1
