"""Steps: what is recorded never runs again; failures, retries and timeouts."""

import asyncio
import functools
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from flowfabric import App, ConfigError, Ctx, Retry
from flowfabric.errors import NestedDurableCall
from flowfabric.testing import Clock
from tests.worker.durable.lab import Lab
from tests.worker.durable.test_step_tx import DIES_IN_ITS_FIRST_COMMIT
from tests.worker.proxy import Proxy
from tests.worker.test_lease_loss import take_lease

pytestmark = pytest.mark.timeout(60)


# What is recorded.


async def test_a_recorded_step_does_not_run_in_the_next_attempt(lab: Lab) -> None:
    async def charge() -> str:
        lab.did.append("charge")
        return "receipt"

    @lab.app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx) -> str:
        receipt = await ctx.step("charge", charge)
        lab.did.append(f"attempt {ctx.attempt_index}")
        if ctx.attempt_index == 0:
            raise OSError("the power is gone")
        return receipt

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "receipt"
    assert lab.did == ["charge", "attempt 0", "attempt 1"]


async def test_a_recorded_step_does_not_run_after_a_park(lab: Lab, clock: Clock) -> None:
    async def charge() -> str:
        lab.did.append("charge")
        return "receipt"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        receipt = await ctx.step("charge", charge)
        await ctx.sleep(60)
        return receipt

    handle = await lab.submitted(job.call())
    assert await lab.state(handle) == "delayed"
    await clock.advance(60)
    await lab.run()

    assert await handle.result(5) == "receipt"
    assert lab.did == ["charge"]
    [attempt] = await handle.attempts()
    assert attempt.attempt_index == 0


async def test_a_step_that_ran_while_its_lease_was_lost_is_not_recorded_and_runs_again(
    lab: Lab,
) -> None:
    gate, began = asyncio.Event(), asyncio.Event()

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def charge() -> str:
            lab.did.append(ctx.effect_key)
            if len(lab.did) == 1:
                began.set()
                await gate.wait()
            return "receipt"

        return await ctx.step("charge", charge)

    handle = await lab.client.submit(job.call())
    async with lab.app.worker(dsn=lab.dsn, on_lease_lost="ignore", lease_ttl=5):
        await began.wait()
        await take_lease(lab.db, handle.execution_id)
        gate.set()
        # The other holder is gone, too.
        await lab.db.execute("UPDATE ff.lease SET lease_expires_at_ms = ff.now_ms() - 1")
        assert await handle.result(20) == "receipt"

    assert len(lab.did) == 2
    assert len(set(lab.did)) == 1
    assert await lab.journal(handle) == ["charge#0 done"]


async def test_a_plain_function_runs_in_a_thread_and_a_partial_takes_keywords(lab: Lab) -> None:
    def whereami(*, loud: bool) -> str:
        where = threading.current_thread().name
        return where.upper() if loud else where

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        return await ctx.step("where", functools.partial(whereami, loud=True))

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "FLOWFABRIC HANDLER"


async def test_a_declared_step_has_its_settings_and_can_be_called_as_it_is(lab: Lab) -> None:
    @lab.app.step("charge", retry=Retry(max_retries=2, initial=0))
    async def charge(order: str, total: int) -> str:
        lab.did.append(order)
        if len(lab.did) < 3:
            raise OSError("busy")
        return f"{order}: {total}"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        return await ctx.step(charge, "o-1", 42)

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == "o-1: 42"
    assert await charge("o-2", 1) == "o-2: 1"
    [entry] = await lab.entries(handle)
    assert (entry["name"], entry["tries"]) == ("charge", 3)


def test_a_step_that_cannot_be_declared_is_refused() -> None:
    app = App()
    with pytest.raises(ConfigError, match="timeout"):
        app.step("charge", timeout=0)
    with pytest.raises(ConfigError, match="retry"):
        app.step("charge", retry=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="raises"):
        app.step("charge", raises=ValueError)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="function"):
        app.step("charge")("charge")  # pyright: ignore[reportArgumentType]


async def test_settings_that_cannot_be_are_refused_before_the_function_runs(lab: Lab) -> None:
    async def charge() -> None:
        lab.did.append("charge")

    @lab.app.step("declared")
    async def declared() -> None: ...

    @lab.app.task("job")
    async def job(ctx: Ctx) -> int:
        step: Any = ctx.step
        calls: list[Any] = [
            lambda: step("charge", charge, timeout=-1),
            lambda: step("charge", charge, retry=3),
            lambda: step("charge", charge, raises=ValueError),
            lambda: step("charge", "charge"),
            lambda: step(declared, retry=Retry()),
        ]
        for call in calls:
            with pytest.raises(ConfigError):
                call()
        return len(calls)

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == 5
    assert lab.did == []


async def test_a_lazy_step_is_written_with_the_next_one(lab: Lab) -> None:
    async def look() -> int:
        return 1

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        await ctx.step("look", look, lazy=True)
        before = await lab.db.fetchval("SELECT count(*) FROM ff.journal")
        await ctx.step("next", look)
        after = await lab.db.fetchval("SELECT count(*) FROM ff.journal")
        return [str(before), str(after)]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == ["0", "2"]


# Inside a body.


async def test_a_durable_call_inside_a_step_is_refused_also_in_its_tasks_and_threads(
    lab: Lab,
) -> None:
    def told(call: Any) -> str:
        try:
            call().close()
        except NestedDurableCall as error:
            return f"{error.name} in {error.inside}"
        return "not told"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        async def body() -> list[str]:
            async def task() -> str:
                return told(lambda: ctx.sleep("nap", 1))

            def thread() -> str:
                return told(lambda: ctx.wait_for_signal("go"))

            return [
                told(lambda: ctx.step("inner", asyncio.sleep, 0)),
                await asyncio.create_task(task()),
                await asyncio.to_thread(thread),
            ]

        def plain() -> str:
            return told(lambda: ctx.step("deep", asyncio.sleep, 0))

        return [*await ctx.step("outer", body), await ctx.step("plain", plain)]

    handle = await lab.submitted(job.call())

    assert await handle.result(5) == [
        "inner in outer",
        "nap in outer",
        "go in outer",
        "deep in plain",
    ]


async def test_every_durable_call_inside_a_step_is_refused(lab: Lab) -> None:
    @lab.app.task("child")
    async def child(ctx: Ctx) -> None: ...

    async def save(conn: Any) -> None: ...

    def calls(ctx: Ctx, door: Any) -> dict[str, Callable[[], Any]]:
        return {
            "step": lambda: ctx.step("inner", int),
            "step_tx": lambda: ctx.step_tx("inner", save),
            "begin_step": lambda: ctx.begin_step("inner"),
            "sleep": lambda: ctx.sleep(1),
            "sleep_until": lambda: ctx.sleep_until(datetime(2027, 1, 1, tzinfo=UTC)),
            "wait_for_signal": lambda: ctx.wait_for_signal("go"),
            "signal": lambda: ctx.signal(ctx.execution_id, "go"),
            "waitpoint": lambda: ctx.waitpoint("another", expires=60),
            "wait": lambda: ctx.wait(door.any()),
            "select": lambda: ctx.select(a=ctx.timer(1)),
            "restart": lambda: ctx.restart(),
            "compensate": lambda: ctx.compensate(child.call()),
            "disarm": lambda: ctx.disarm(),
            "gather": lambda: ctx.gather([child.call()]),
            "race": lambda: ctx.race(child.call()),
            "quorum": lambda: ctx.quorum(1, [child.call()]),
            "spawn": lambda: ctx.spawn(child.call()),
            "now": lambda: ctx.now(),
            "random": lambda: ctx.random(),
            "uuid": lambda: ctx.uuid(),
            "patched": lambda: ctx.patched("audit"),
        }

    @lab.app.task("job")
    async def job(ctx: Ctx) -> list[str]:
        door = await ctx.waitpoint("door", expires=60)

        async def body() -> list[str]:
            told: list[str] = []
            for name, call in calls(ctx, door).items():
                try:
                    made = call()
                    if asyncio.iscoroutine(made):
                        await made
                except NestedDurableCall:
                    told.append(name)
            return told

        return await ctx.step("outer", body)

    await lab.seed_key()
    handle = await lab.submitted(job.call())

    assert await handle.result(5) == list(calls(None, None))  # type: ignore[arg-type]  not called
    assert await lab.journal(handle) == ["door#0 done", "outer#0 done"]


async def test_progress_the_stream_and_the_lease_may_be_used_inside_a_step(lab: Lab) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> bool:
        async def body() -> bool:
            await ctx.progress(40, "half")
            await ctx.emit("said", "hello")
            await ctx.live("said", "hello")
            await ctx.patch({"a": 1})
            ctx.check()
            assert ctx.effect_key
            assert ctx.fence.lease_epoch == 1
            return ctx.lease.healthy

        return await ctx.step("work", body)

    handle = await lab.submitted(job.call())

    assert await handle.result(5) is True


# When the database or the worker goes away.


@pytest.mark.session("loses the answer of one session")
@pytest.mark.parametrize("committed", [True, False])
async def test_a_flush_without_an_answer_is_repeated_and_the_step_does_not_run_again(
    lab: Lab, committed: bool
) -> None:
    """The connection breaks as the flush is answered, or while it is committed."""

    async def charge() -> str:
        lab.did.append("charge")
        return "receipt"

    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        return await ctx.step("charge", charge)

    async def recorded() -> bool:
        return await lab.db.fetchval("SELECT EXISTS (SELECT FROM ff.journal)")

    if not committed:
        await lab.db.execute(DIES_IN_ITS_FIRST_COMMIT.replace("public.orders", "ff.journal"))
    handle = await lab.client.submit(job.call())
    async with Proxy.to(lab.dsn) as proxy:
        if committed:
            proxy.lose_answer(recorded)
        async with lab.app.worker(dsn=proxy.dsn, lease_ttl=10):
            assert await handle.result(30) == "receipt"

    assert lab.did == ["charge"]
    assert await lab.journal(handle) == ["charge#0 done"]
    assert (await lab.row(handle))["lease_epoch"] == 1


async def test_a_step_that_is_cut_off_when_its_worker_drains_runs_again_with_the_same_key(
    lab: Lab,
) -> None:
    @lab.app.task("job")
    async def job(ctx: Ctx) -> str:
        async def charge() -> str:
            lab.did.append(ctx.effect_key)
            if len(lab.did) == 1:
                worker.stop()
                await asyncio.sleep(30)
            return ctx.effect_key

        return await ctx.step("charge", charge)

    handle = await lab.client.submit(job.call())
    worker = lab.app.worker(dsn=lab.dsn, drain=0)
    await worker.run(handle_signals=False)
    assert await lab.journal(handle) == []
    await lab.run()

    first, second = lab.did
    assert first == second == await handle.result(5)
    assert (await lab.row(handle))["attempt_index"] == 0
