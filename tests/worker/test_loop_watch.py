"""A handler that blocks the event loop is noticed by the thread that renews leases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest

from flowfabric import App, Client, Ctx, Engine
from flowfabric.worker import loop_watch, renewal_schedule
from flowfabric.worker.loop_watch import LoopWatch
from tests.worker.facts import eventually


@pytest.fixture
def gate() -> Generator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


async def test_a_loop_that_runs_is_not_blocked() -> None:
    watch = LoopWatch(asyncio.get_running_loop())
    for _ in range(3):
        watch.ask()
        await asyncio.sleep(0)
        assert watch.blocked_for() == 0.0


async def test_workers_say_for_how_long_a_handler_blocked_the_loop(
    client: Client,
    ff_dsn: str,
    ff_engine: Engine,
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renewal_schedule, "HEARTBEAT", 0.2)
    monkeypatch.setattr(loop_watch, "LEAST", 1.0)
    app = App()

    @app.task("crunch")
    async def crunch(ctx: Ctx) -> str:
        await asyncio.sleep(0)
        gate.wait(30)
        return "done"

    stop = threading.Event()

    async def serve() -> None:
        async with app.worker(dsn=ff_dsn):
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        handle = await client.submit(crunch.call())

        async def blocked() -> bool:
            workers = (await ff_engine.list_workers("default")).workers
            return any(each.loop_blocked.total_seconds() >= 1.0 for each in workers)

        async def free() -> bool:
            [worker] = (await ff_engine.list_workers("default")).workers
            return not worker.loop_blocked

        await eventually(blocked, within=30)
        gate.set()
        assert await handle.result(timeout=30) == "done"
        await eventually(free, within=30)
    finally:
        gate.set()
        stop.set()
        await asyncio.to_thread(thread.join)
