"""Claimed attempts share tasks until a handler waits; handlers that wait run side by side."""

from __future__ import annotations

import asyncio
from typing import Any

from flowfabric import App, Client

COUNT = 40


async def test_handlers_that_wait_for_one_another_all_run(ff_dsn: str, client: Client) -> None:
    app = App()
    all_run = asyncio.Barrier(COUNT)

    @app.task("meet")
    async def meet(ctx: Any) -> None:
        await all_run.wait()

    handles = await client.submit_many([meet.call() for _ in range(COUNT)])

    async with app.worker(dsn=ff_dsn, concurrency=COUNT), asyncio.timeout(30):
        await asyncio.gather(*[handle.result() for handle in handles])


async def test_a_slot_is_free_while_another_handler_waits(ff_dsn: str, client: Client) -> None:
    app = App()
    began, may_end = asyncio.Event(), asyncio.Event()

    @app.task("long")
    async def long(ctx: Any) -> None:
        began.set()
        await may_end.wait()

    @app.task("short")
    async def short(ctx: Any) -> None:
        may_end.set()

    waiting = await client.submit(long.call())
    async with app.worker(dsn=ff_dsn, concurrency=2), asyncio.timeout(30):
        await began.wait()
        await (await client.submit(short.call())).result()
        await waiting.result()


async def test_handlers_that_do_not_wait_share_a_task(ff_dsn: str, client: Client) -> None:
    app = App()
    tasks: set[asyncio.Task[Any] | None] = set()

    @app.task("note")
    async def note(ctx: Any) -> None:
        tasks.add(asyncio.current_task())

    handles = await client.submit_many([note.call() for _ in range(COUNT)])

    async with app.worker(dsn=ff_dsn, concurrency=COUNT), asyncio.timeout(30):
        await asyncio.gather(*[handle.result() for handle in handles])
    assert len(tasks) <= 2
