"""What a handler sees of its execution, and what stands around it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric import App, Client, Ctx, ExecutionFailed, Retry, ValidationError
from flowfabric.db.rows import Connection
from flowfabric.ids import attempt_id
from tests import given
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(30)


async def test_the_context_tells_who_runs(client: Client, ff_dsn: str, db: Connection) -> None:
    app, told = App("shop"), {}
    app.state.gateway = "stripe"

    @app.task("charge", lane="payments")
    async def charge(ctx: Ctx, amount: int) -> None:
        told["fields"] = (ctx.kind, ctx.lane, ctx.tags, ctx.payload, ctx.attempt_index)
        told["type"], told["state"] = ctx.attempt_type, ctx.state.gateway
        told["id"], told["fence"] = ctx.execution_id, ctx.fence
        told["healthy"] = (ctx.lease.healthy, ctx.lease.failures, ctx.lease.lost.is_set())

    client.namespace = "shop"
    handle = await client.submit(charge.call(5), tags={"shop.tenant": "acme"})
    await app.worker(dsn=ff_dsn).run_until_idle()

    tags = {"shop.tenant": "acme"}
    assert told["fields"] == ("charge", "payments", tags, b'{"amount":5}', 0)
    assert (told["type"], told["state"]) == ("initial", "stripe")
    assert told["id"] == handle.execution_id
    assert told["healthy"] == (True, 0, False)
    stored = await given.row(db, handle.execution_id)
    assert told["fence"].lease_id == stored["lease_id"]
    assert told["fence"].lease_epoch == stored["lease_epoch"] == 1
    assert told["fence"].attempt_id == attempt_id(handle.execution_id, 0)


async def test_the_fence_grows_with_every_claim(client: Client, ff_dsn: str) -> None:
    app, fences = App(), []

    @app.task("job", retry=Retry(max_retries=2, initial=0))
    async def job(ctx: Ctx) -> None:
        fences.append(ctx.fence)
        if len(fences) < 3:
            raise RuntimeError("again")

    async with app.worker(dsn=ff_dsn):
        await (await client.submit(job.call())).result(timeout=10)

    epochs = [fence.lease_epoch for fence in fences]
    assert epochs == sorted(set(epochs))
    assert len({fence.lease_id for fence in fences}) == 3
    assert len({fence.attempt_id for fence in fences}) == 3


@pytest.mark.parametrize("threaded", [False, True], ids=["async", "plain"])
async def test_progress_is_visible_while_the_handler_runs(
    client: Client, ff_dsn: str, threaded: bool
) -> None:
    app, seen = App(), asyncio.Event()
    loop = asyncio.get_running_loop()

    async def on_loop(ctx: Ctx) -> None:
        await ctx.progress(30, "fetched\x00")
        await seen.wait()
        await ctx.progress(message="written")

    def in_thread(ctx: Ctx) -> None:
        ctx.sync.check()
        ctx.sync.progress(30, "fetched\x00")
        asyncio.run_coroutine_threadsafe(seen.wait(), loop).result(10)
        ctx.sync.progress(message="written")

    task = app.task("job")(in_thread if threaded else on_loop)

    async with app.worker(dsn=ff_dsn):
        handle = await client.submit(task.call())

        async def shown() -> tuple[int | None, str | None]:
            snapshot = await handle.describe()
            return snapshot.progress_pct, snapshot.progress_message

        async def is_shown() -> bool:
            return await shown() == (30, "fetched\N{REPLACEMENT CHARACTER}")

        await eventually(is_shown)
        seen.set()
        await handle.result(timeout=10)

    assert await shown() == (30, "written")


async def test_progress_that_cannot_be_is_the_handlers_own_error(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> str:
        with pytest.raises(ValidationError, match="percent"):
            await ctx.progress(101)
        return "went on"

    async with app.worker(dsn=ff_dsn):
        assert await (await client.submit(job.call())).result(timeout=10) == "went on"


@pytest.mark.parametrize("threaded", [False, True], ids=["async", "plain"])
async def test_middleware_wraps_the_handler_the_first_outermost(
    client: Client, ff_dsn: str, threaded: bool
) -> None:
    app, lines = App(), []

    def noting(name: str) -> Callable[[Ctx, Callable[[], Awaitable[Any]]], Awaitable[Any]]:
        async def middleware(ctx: Ctx, call_next: Callable[[], Awaitable[Any]]) -> Any:
            lines.append(f"{name} before {ctx.kind}")
            result = await call_next()
            lines.append(f"{name} after {result}")
            return result + 1

        return middleware

    app.middleware(noting("first"))
    app.middleware(noting("second"))

    async def on_loop(ctx: Ctx, number: int) -> int:
        lines.append(f"run {number}")
        return number

    def in_thread(ctx: Ctx, number: int) -> int:
        lines.append(f"run {number}")
        return number

    task = app.task("job")(in_thread if threaded else on_loop)

    handle = await client.submit(task.call(1))
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=10) == 3
    assert lines == [
        "first before job",
        "second before job",
        "run 1",
        "second after 1",
        "first after 2",
    ]


async def test_middleware_may_answer_itself_or_turn_an_error_around(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.middleware
    async def guard(ctx: Ctx, call_next: Callable[[], Awaitable[Any]]) -> Any:
        if ctx.tags.get("test.skip"):
            return "skipped"
        try:
            return await call_next()
        except KeyError as error:
            raise RuntimeError("translated") from error

    @app.task("job")
    async def job(ctx: Ctx) -> str:
        raise KeyError("raw")

    skipped = await client.submit(job.call(), tags={"test.skip": "yes"})
    translated = await client.submit(job.call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await skipped.result(timeout=10) == "skipped"
    with pytest.raises(ExecutionFailed, match="RuntimeError: translated: KeyError: 'raw'"):
        await translated.result(timeout=10)
