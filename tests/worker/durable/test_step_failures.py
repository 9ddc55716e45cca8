"""Steps that fail: tries, timeouts, and what is recorded of a failure."""

import asyncio
import threading
import time
from typing import Any

import pytest

from flowfabric import Ctx, ExecutionFailed, Fail, LeaseLost, Retry, RetryLater, StepFailed
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(60)


async def test_a_failure_that_leaves_the_handler_is_not_recorded_and_the_next_attempt_runs_it(
    lab: Lab,
) -> None:
    async def charge() -> str:
        lab.did.append("charge")
        if len(lab.did) < 2:
            raise OSError("busy")
        return "receipt"

    @lab.app.task("job", retry=Retry(max_retries=3, initial=0))
    async def job(ctx: Ctx) -> str:
        return await ctx.step("charge", charge)

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "receipt"
    assert lab.did == ["charge", "charge"]
    assert await lab.journal(handle) == ["charge#0 done"]


async def test_a_failure_that_the_handler_catches_is_recorded_before_its_next_call(
    lab: Lab, clock: Clock
) -> None:
    async def charge() -> None:
        lab.did.append("charge")
        raise OSError("busy")

    async def mail() -> None:
        lab.did.append(await lab.db.fetchval("SELECT state FROM ff.journal WHERE name = 'charge'"))

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        try:
            await ctx.step("charge", charge)
        except StepFailed as error:
            told = f"{error.name} {error.category} {error.reason} {error.error_type}"
        else:
            told = "not told"
        await ctx.step("mail", mail)
        await ctx.sleep(60)
        return told

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "charge handler_error busy OSError"
    assert lab.did == ["charge", "failed"]


async def test_a_failure_that_the_handler_catches_last_is_recorded_when_it_returns(
    lab: Lab,
) -> None:
    async def charge() -> None:
        raise OSError("busy")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        with pytest.raises(StepFailed):
            await ctx.step("charge", charge)
        return "got over it"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "got over it"
    assert await lab.journal(handle) == ["charge#0 failed"]


async def test_a_failure_beside_a_step_that_ends_later_is_not_recorded_if_it_leaves_the_handler(
    lab: Lab,
) -> None:
    async def charge() -> str:
        lab.did.append("charge")
        if lab.did.count("charge") < 2:
            raise OSError("busy")
        return "receipt"

    async def mail() -> str:
        await asyncio.sleep(0.1)
        lab.did.append("mail")
        return "sent"

    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> list[str]:
        found = await asyncio.gather(
            ctx.step("charge", charge), ctx.step("mail", mail), return_exceptions=True
        )
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return [str(each) for each in found]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == ["receipt", "sent"]
    assert lab.did == ["charge", "mail", "charge"]


@pytest.mark.parametrize("form", ["gather", "gather all", "group"])
async def test_of_several_that_fail_beside_each_other_none_is_recorded_if_the_handler_ends_by_one(
    lab: Lab, form: str
) -> None:
    async def flaky(name: str) -> str:
        lab.did.append(name)
        if lab.did.count(name) < 2:
            raise OSError("busy")
        return name

    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> list[str]:
        calls = [ctx.step(name, flaky, name) for name in ("pay", "mail", "ship")]
        if form == "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(each) for each in calls]
            return [each.result() for each in tasks]
        found = await asyncio.gather(*calls, return_exceptions=form == "gather all")
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return [str(each) for each in found]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == ["pay", "mail", "ship"]
    assert sorted(lab.did) == sorted(["pay", "mail", "ship"] * 2)


async def test_a_failure_in_one_branch_is_not_recorded_by_the_next_step_of_another(
    lab: Lab,
) -> None:
    async def charge() -> str:
        lab.did.append("charge")
        if lab.did.count("charge") < 2:
            raise OSError("busy")
        return "receipt"

    async def work() -> None:
        await asyncio.sleep(0.05)

    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> str:
        async def paying() -> str:
            return await ctx.step("charge", charge)

        async def mailing() -> None:
            await ctx.step("draft", work)
            await ctx.step("send", work)

        receipt, _ = await asyncio.gather(paying(), mailing(), return_exceptions=True)
        if isinstance(receipt, BaseException):
            raise receipt
        return receipt

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "receipt"
    assert sorted(await lab.journal(handle)) == ["charge#0 done", "draft#0 done", "send#0 done"]


async def test_a_branch_that_gets_over_a_failure_in_a_task_of_its_own_records_it(
    lab: Lab, clock: Clock
) -> None:
    async def charge() -> None:
        lab.did.append("charge")
        raise OSError("busy")

    async def work() -> None:
        lab.did.append("work")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def paying() -> None:
            await ctx.step("charge", charge)

        async def branch() -> None:
            with pytest.raises(StepFailed):
                await asyncio.create_task(paying())
            await ctx.step("work", work)

        await asyncio.create_task(branch())
        await ctx.sleep(60)
        return "over"

    handle = await lab.submitted(job.call())
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "over"
    assert lab.did == ["charge", "work"]


async def test_tries_that_are_near_are_made_in_place(lab: Lab) -> None:
    async def charge() -> int:
        lab.did.append("charge")
        if len(lab.did) < 3:
            raise OSError("busy")
        return len(lab.did)

    @lab.app.task("job")
    async def job(ctx: Ctx) -> int:
        lab.did.append(ctx.fence.lease_epoch)
        lab.did.clear()
        return await ctx.step("charge", charge, retry=Retry(max_retries=5, initial=0.01))

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == 3
    [entry] = await lab.entries(handle)
    assert (entry["state"], entry["tries"]) == ("done", 3)
    assert (await lab.row(handle))["lease_epoch"] == 1


async def test_a_try_that_is_far_off_gives_up_the_lease(lab: Lab, clock: Clock) -> None:
    async def charge() -> str:
        lab.did.append("charge")
        if len(lab.did) < 3:
            raise OSError("busy")
        return "receipt"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        retry = Retry(max_retries=5, initial=30, factor=2, max=600)
        return await ctx.step("charge", charge, retry=retry)

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "delayed"
    assert await lab.detail(handle) == "step 'charge': try 2 of 6"
    [entry] = await lab.entries(handle)
    assert (entry["state"], entry["tries"]) == ("open", 1)

    await clock.advance(29)
    await lab.run()
    assert lab.did == ["charge"]
    await clock.advance(1)
    await lab.run()
    assert await lab.detail(handle) == "step 'charge': try 3 of 6"
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "receipt"
    [entry] = await lab.entries(handle)
    assert (entry["state"], entry["tries"]) == ("done", 3)


async def test_a_body_says_when_it_is_tried_again(lab: Lab, clock: Clock) -> None:
    async def charge() -> str:
        lab.did.append("charge")
        if len(lab.did) < 2:
            raise RetryLater(after=500)
        return "receipt"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        return await ctx.step("charge", charge, retry=Retry(max_retries=1, initial=0))

    handle = await lab.submitted(job.call())
    await clock.advance(499)
    await lab.run()
    assert lab.did == ["charge"]
    await clock.advance(1)
    await lab.run()

    assert await handle.result(5) == "receipt"


@pytest.mark.parametrize("how", ["retries used up", "not retryable", "another category"])
async def test_a_failure_for_good_is_recorded_and_the_attempt_is_not_retried(
    lab: Lab, how: str
) -> None:
    retry = {
        "retries used up": Retry(max_retries=1, initial=0),
        "not retryable": None,
        "another category": Retry(max_retries=5, initial=0, categories=("network",)),
    }[how]

    async def charge() -> None:
        lab.did.append("charge")
        if how == "not retryable":
            raise Fail("declined", category="declined", retryable=False)
        raise OSError("busy")

    @lab.app.task("job", retry=Retry(max_retries=3, initial=0))
    async def job(ctx: Ctx) -> None:
        await ctx.step("charge", charge, retry=retry)

    handle = await lab.submitted(job.call())

    with pytest.raises(ExecutionFailed) as failed:
        await handle.result(5)
    assert failed.value.category == ("declined" if how == "not retryable" else "handler_error")
    assert lab.did == ["charge"] * (2 if how == "retries used up" else 1)
    assert await lab.journal(handle) == ["charge#0 failed"]
    assert len(await handle.attempts()) == 1


async def test_a_failure_for_good_in_a_task_group_ends_the_execution_too(lab: Lab) -> None:
    async def charge() -> None:
        lab.did.append("charge")
        raise Fail("declined", retryable=False)

    @lab.app.task("job", retry=Retry(max_retries=3, initial=0))
    async def job(ctx: Ctx) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("charge", charge))

    handle = await lab.submitted(job.call())

    assert await lab.state(handle) == "failed"
    assert lab.did == ["charge"]


@pytest.mark.parametrize(
    ("rule", "runs"),
    [
        ({"no_retry_on": (ValueError,)}, 1),
        ({"no_retry_on": (OSError,)}, 3),
        ({"retry_on": (ValueError,)}, 3),
        ({"retry_on": (OSError,)}, 1),
    ],
)
async def test_the_tasks_own_policy_looks_at_the_error_behind_a_failed_step(
    lab: Lab, rule: dict[str, Any], runs: int
) -> None:
    async def charge() -> None:
        lab.did.append("charge")
        raise ValueError("no such card")

    @lab.app.task("job", retry=Retry(max_retries=2, initial=0), **rule)
    async def job(ctx: Ctx) -> None:
        await ctx.step("charge", charge)

    handle = await lab.submitted(job.call())

    assert await lab.state(handle) == "failed"
    assert lab.did == ["charge"] * runs


async def test_a_try_that_takes_too_long_has_failed(lab: Lab) -> None:
    async def charge() -> str:
        lab.did.append("charge")
        await asyncio.sleep(0 if len(lab.did) > 1 else 30)
        return "receipt"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        with pytest.raises(StepFailed) as failed:
            await ctx.step("slow", asyncio.sleep, 30, timeout=0.05)
        receipt = await ctx.step(
            "charge", charge, timeout=0.1, retry=Retry(max_retries=1, initial=0)
        )
        return f"{failed.value.category} {receipt}"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "timeout receipt"


async def test_the_thread_of_a_plain_function_goes_on_after_its_timeout(lab: Lab) -> None:
    gate = threading.Event()

    def work() -> None:
        gate.wait(20)
        lab.did.append("worked")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        with pytest.raises(StepFailed) as failed:
            await ctx.step("work", work, timeout=0.05)
        await ctx.step("more", lab.did.append, "more")  # a stuck thread takes nobody's place
        return f"went on after {failed.value.category}"

    handle = await lab.submitted(job.call(), sync_workers=1)

    assert await handle.result(5) == "went on after timeout"
    assert lab.did == ["more"]
    gate.set()
    await eventually(lambda: lab.did == ["more", "worked"])


async def test_a_step_that_the_handler_cancels_is_not_recorded(lab: Lab) -> None:
    async def work() -> None:
        lab.did.append("work")
        await asyncio.sleep(30)

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await ctx.step("work", work)
        return "went on"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "went on"
    assert await lab.journal(handle) == []


async def test_a_step_that_an_aborted_task_group_cancels_is_not_recorded_and_runs_again(
    lab: Lab,
) -> None:
    began = asyncio.Event()

    async def work() -> str:
        lab.did.append("work")
        if len(lab.did) == 1:
            began.set()
            await asyncio.sleep(30)
        return "worked"

    async def abort() -> None:
        await began.wait()
        raise OSError("busy")

    async def both(ctx: Ctx) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("work", work, key="a"))
            group.create_task(abort())

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        with pytest.raises(ExceptionGroup):
            await both(ctx)
        lab.did.append(await lab.journal(handle))
        return await ctx.step("work", work, key="b")

    handle = await lab.client.submit(job.call())
    await lab.run()

    assert await handle.result(5) == "worked"
    assert lab.did == ["work", [], "work"]
    assert await lab.journal(handle) == ["work:b#0 done"]


async def test_a_body_whose_lease_was_lost_is_stopped_and_the_handler_told(lab: Lab) -> None:
    began = asyncio.Event()

    async def work() -> str:
        lab.did.append("work")
        if lab.did.count("work") > 1:
            return "worked"
        began.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            lab.did.append("stopped")
            raise
        return "never"

    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> str:
        try:
            return await ctx.step("work", work)
        except asyncio.CancelledError:
            with pytest.raises(LeaseLost):
                await ctx.step("clean up", work)
            lab.did.append("told")
            raise

    handle = await lab.client.submit(job.call())
    async with lab.app.worker(dsn=lab.dsn, lease_ttl=2):
        await began.wait()
        await lab.engine.revoke_lease(handle.execution_id, reason="frozen")
        assert await handle.result(20) == "worked"

    # The next attempt may run before the handler of the lost one is told.
    assert sorted(lab.did) == ["stopped", "told", "work", "work"]
    assert lab.did.index("stopped") < lab.did.index("told")
    assert await lab.journal(handle) == ["work#0 done"]


async def test_a_cancelled_execution_stops_the_body_and_records_nothing(lab: Lab) -> None:
    began = asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            lab.did.append("stopped")
            raise

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await ctx.step("work", work)

    handle = await lab.client.submit(job.call())
    async with lab.app.worker(dsn=lab.dsn, lease_ttl=2):
        await began.wait()
        await handle.cancel()
        await eventually(lambda: lab.did)

    assert lab.did == ["stopped"]
    assert await lab.journal(handle) == []


async def test_a_step_that_still_runs_when_its_handler_has_ended_is_stopped(lab: Lab) -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            lab.did.append("stopped")
            raise

    async def fails() -> None:
        raise OSError("busy")

    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        await asyncio.gather(ctx.step("work", work), ctx.step("fails", fails))

    began = time.monotonic()
    handle = await lab.submitted(job.call())

    assert await lab.state(handle) == "failed"
    assert lab.did == ["stopped"]
    assert time.monotonic() - began < 20
