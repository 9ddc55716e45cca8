"""Sleeps, and waits for signals by name."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowfabric import Ctx, ValidationError
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(60)


# Sleeps.


async def test_a_short_sleep_takes_place_under_the_same_lease(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> float:
        began = time.monotonic()
        await ctx.sleep("nap", 0.2)
        return time.monotonic() - began

    handle = await lab.submitted(job.call())

    assert await handle.result(5) >= 0.19
    assert (await lab.row(handle))["lease_epoch"] == 1
    assert await lab.journal(handle) == ["nap#0 done"]


async def test_a_long_sleep_holds_neither_lease_nor_slot_and_counts_no_attempt(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job", timeout=5)
    async def job(ctx: Ctx) -> str:
        await ctx.sleep("cool-down", timedelta(days=3))
        return "awake"

    handle = await lab.submitted(job.call(), concurrency=1)
    row = await lab.row(handle)
    assert (row["public_state"], row["lease_expires_at_ms"]) == ("delayed", None)
    assert row["blocking_detail"] == "sleeps in 'cool-down'"
    await clock.advance(timedelta(days=3) - timedelta(seconds=1))
    await lab.run()
    assert await lab.state(handle) == "delayed"
    await clock.advance(1)
    await lab.run()

    assert await handle.result(5) == "awake"
    assert len(await handle.attempts()) == 1


async def test_sleeping_until_an_instant(lab: Lab, clock: Clock) -> None:
    opening = await clock.now() + timedelta(hours=9)

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        await ctx.sleep_until("opening", opening)
        await ctx.sleep_until(opening - timedelta(days=1))  # has passed
        return "open"

    handle = await lab.submitted(job.call())
    await clock.advance(timedelta(hours=9))
    await lab.run()

    assert await handle.result(5) == "open"
    assert await lab.journal(handle) == ["opening#0 open", "sleep#0 done"]


async def test_a_sleep_of_no_time_passes_at_once_and_is_recorded(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        await ctx.sleep(0)
        return "done"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "done"
    assert await lab.journal(handle) == ["sleep#0 done"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda ctx: ctx.sleep(-1), "negative"),
        (lambda ctx: ctx.sleep("nap", timedelta(days=40_000)), "century"),
        (lambda ctx: ctx.sleep_until(datetime(2027, 1, 1)), "time zone"),
        (lambda ctx: ctx.sleep_until(datetime(2999, 1, 1, tzinfo=UTC)), "century"),
        (lambda ctx: ctx.wait_for_signal("go", timeout=-1), "negative"),
    ],
)
async def test_times_that_cannot_be_are_refused_and_nothing_is_written(
    lab: Lab, call: Any, told: str
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        with pytest.raises(ValidationError, match=told):
            call(ctx)
        return "told"

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "told"
    assert await lab.journal(handle) == []


async def test_a_sleeper_is_woken_soon_after_it_is_due_by_the_worker_that_parked_it(
    lab: Lab,
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> float:
        due = ctx.now() + timedelta(seconds=2.5)
        await ctx.sleep(2.5)
        return (ctx.now(key="awake") - due).total_seconds()

    handle = await lab.client.submit(job.call())
    async with lab.app.worker(dsn=lab.dsn, reconcile=False):
        late = await handle.result(20)

    assert (await lab.row(handle))["lease_epoch"] == 2
    assert 0 <= late < 1


async def test_the_timeout_of_an_attempt_does_not_count_while_it_sleeps(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job", timeout=30)
    async def job(ctx: Ctx) -> str:
        await ctx.sleep("one", 60)
        await ctx.sleep("two", 60)
        return "rested"

    handle = await lab.submitted(job.call())
    for _ in range(2):
        assert await lab.state(handle) == "delayed"
        await clock.advance(60)
        await lab.run()

    assert await handle.result(5) == "rested"
    assert len(await handle.attempts()) == 1


async def test_a_deadline_expires_a_sleeper(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job", deadline=30)
    async def job(ctx: Ctx) -> None:
        await ctx.sleep(60)

    handle = await lab.submitted(job.call())
    await clock.advance(31)
    async with lab.app.worker(dsn=lab.dsn):
        await eventually(lambda: _is(lab, handle, "expired"))


async def _is(lab: Lab, handle: Any, state: str) -> bool:
    return await lab.state(handle) == state


async def test_a_sleeper_that_is_cancelled_is_over_at_once_and_nothing_runs(
    lab: Lab, clock: Clock
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> None:
        lab.did.append("ran")
        await ctx.sleep(60)

    handle = await lab.submitted(job.call())
    await handle.cancel()
    assert await lab.state(handle) == "cancelled"
    await clock.advance(60)
    await lab.run()

    assert lab.did == ["ran"]


async def test_a_sleeper_that_is_woken_early_sleeps_on(lab: Lab, clock: Clock) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        lab.did.append("ran")
        await ctx.sleep(60)
        return "awake"

    handle = await lab.submitted(job.call())
    await lab.engine.wake_execution(handle.execution_id)
    await lab.run()
    assert await lab.state(handle) == "delayed"
    assert lab.did == ["ran", "ran"]
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "awake"
