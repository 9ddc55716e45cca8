"""How a worker learns of work, and how its outcomes travel: quickly, and in few statements."""

import asyncio
import statistics
import time
from typing import Any

import pytest

from flowfabric import App, Client, Ctx
from flowfabric.db.rows import Connection
from tests.worker.facts import count, eventually, is_idle, outcome_transactions

pytestmark = pytest.mark.timeout(40)


async def delays_to_start(client: Client, app: App, samples: int) -> list[float]:
    """How long each of several executions, submitted one by one, waits for its handler."""
    starts: asyncio.Queue[float] = asyncio.Queue()

    @app.middleware
    async def note(ctx: Ctx, call_next: object) -> None:
        starts.put_nowait(time.monotonic())

    delays = []
    for _ in range(samples):
        submitted = time.monotonic()
        await client.submit(app.tasks["job"].call())
        delays.append(await asyncio.wait_for(starts.get(), 10) - submitted)
    return delays


def idle_app() -> App:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> None: ...

    return app


@pytest.mark.timing
@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_notification_wakes_an_idle_worker_long_before_its_next_poll(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = idle_app()

    async with app.worker(dsn=ff_dsn):
        await eventually(lambda: is_idle(db))
        delays = await delays_to_start(client, app, 9)

    assert statistics.median(delays) < 0.25  # it polls every three seconds


@pytest.mark.timing
@pytest.mark.session("begins when a process is registered for notifications")
async def test_work_that_became_due_wakes_an_idle_worker(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = idle_app()

    async with app.worker(dsn=ff_dsn):
        await eventually(lambda: is_idle(db))
        began = time.monotonic()
        handle = await client.submit(app.tasks["job"].call(), delay=0.3)
        await handle.result(timeout=10)

    assert 0.3 <= time.monotonic() - began < 2.5  # due, promoted every 0.75 s, and woken


@pytest.mark.timing
@pytest.mark.parametrize("settings", [{"listen": False}, {"pooler": True}], ids=str)
async def test_without_notifications_a_worker_polls(
    client: Client, ff_dsn: str, db: Connection, settings: dict[str, Any]
) -> None:
    app = idle_app()

    async with app.worker(dsn=ff_dsn, **settings):
        delays = await delays_to_start(client, app, 3)
        listeners = await db.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'flowfabric listener'"
            " AND datname = current_database() AND query LIKE 'LISTEN%'"
        )

    assert max(delays) < 1.5  # the longest pause between two looks is a second
    assert listeners == 0
    assert not await is_idle(db)


@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_worker_that_is_busy_is_deregistered(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()

    @app.task("nap")
    async def nap(ctx: Ctx) -> None:
        await asyncio.sleep(0.02)

    async def is_busy() -> bool:
        return not await is_idle(db) and await count(db, "completed") > 0

    async with app.worker(dsn=ff_dsn, concurrency=2):
        await eventually(lambda: is_idle(db))
        await client.submit_many([nap.call() for _ in range(100)])
        await eventually(is_busy)


async def test_outcomes_of_many_executions_are_recorded_in_few_transactions(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()

    @app.task("quick")
    async def quick(ctx: Ctx, number: int) -> int:
        if number % 10 == 0:
            raise RuntimeError("tenth")
        return number

    async def all_ended() -> bool:
        return await db.fetchval("SELECT count(*) FROM ff.completion_event") == 1000

    await client.submit_many(quick.many(range(1000)))
    async with app.worker(dsn=ff_dsn, concurrency=64):
        await eventually(all_ended, within=20)

    assert (await count(db, "completed"), await count(db, "failed")) == (900, 100)
    assert await outcome_transactions(db) < 150


@pytest.mark.timing
@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_single_outcome_does_not_wait_for_company(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = idle_app()

    async with app.worker(dsn=ff_dsn):
        await eventually(lambda: is_idle(db))
        took = []
        for _ in range(7):
            began = time.monotonic()
            await (await client.submit(app.tasks["job"].call())).result(timeout=10)
            took.append(time.monotonic() - began)

    assert statistics.median(took) < 0.3
