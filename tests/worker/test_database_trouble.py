"""The database in trouble: it costs the worker time, and nothing else."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric import App, Client, Ctx, Task
from flowfabric.db.rows import Connection
from flowfabric.states import PublicState
from flowfabric.worker.claimed_task import ClaimedTask
from tests import given
from tests.worker.facts import (
    count,
    cut_worker_connections,
    eventually,
    is_idle,
    told_twice,
    worker_connections,
)
from tests.worker.proxy import Proxy

pytestmark = [pytest.mark.timeout(60), pytest.mark.direct("cuts the connections of the worker")]


def napping(app: App, seconds: float = 0.02) -> tuple[Task[..., Any], list[int]]:
    """A task that naps, and the numbers it was called with."""
    runs: list[int] = []

    @app.task("nap")
    async def nap(ctx: Ctx, number: int) -> int:
        runs.append(number)
        await asyncio.sleep(seconds)
        return number

    return nap, runs


async def all_done(db: Connection) -> bool:
    return await count(db) == await count(db, "completed")


@pytest.mark.session("counts the sessions of a worker")
async def test_a_worker_carries_on_however_often_its_connections_are_cut(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    nap, runs = napping(app)
    cuts = 0

    await client.submit_many(nap.many(range(300)))
    async with app.worker(dsn=ff_dsn, concurrency=8, lease_ttl=5):
        for done in range(25, 275, 25):

            async def further(done: int = done) -> bool:
                return len(runs) >= done

            await eventually(further)
            cuts += await cut_worker_connections(db)
        await eventually(lambda: all_done(db), within=30)

    assert cuts >= 20
    assert sorted(set(runs)) == list(range(300))
    assert await told_twice(db) == 0
    assert await db.fetchval("SELECT count(*) FROM ff.completion_event") == 300


@pytest.mark.session("begins when a process is registered for notifications")
async def test_an_idle_worker_whose_connections_were_cut_still_finds_work(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    nap, _ = napping(app)

    async with app.worker(dsn=ff_dsn):
        for number in range(3):
            await eventually(lambda: is_idle(db))
            assert await cut_worker_connections(db) >= 2
            handle = await client.submit(nap.call(number))
            assert await handle.result(timeout=10) == number


@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_worker_survives_the_loss_of_any_statement_it_can_be_in(
    client: Client, ff_dsn: str, db: Connection, another: Any
) -> None:
    """Even the one that deregisters the waiter, which only a busy worker sends."""
    app = App()
    nap, _ = napping(app, 0.05)

    async def waiting_statement() -> int | None:
        return await db.fetchval(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND query LIKE '%DELETE FROM ff.waiter%'"
        )

    async with app.worker(dsn=ff_dsn, concurrency=1):
        await eventually(lambda: is_idle(db))
        holder = await another()
        async with holder.transaction():
            await holder.execute("LOCK TABLE ff.waiter IN SHARE MODE")
            handles = await client.submit_many(nap.many(range(30)))
            pid = await eventually(waiting_statement)
            await db.execute("SELECT pg_terminate_backend($1)", pid)
        assert await handles[-1].result(timeout=15) == 29


@pytest.mark.parametrize("fault", ["cut", "silence"])
async def test_outcomes_wait_out_an_outage_and_are_recorded_once(
    client: Client, ff_dsn: str, db: Connection, fault: str
) -> None:
    app, gate, started = App(), asyncio.Event(), []

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> int:
        started.append(number)
        await gate.wait()
        return number

    handles = await client.submit_many(job.many(range(10)))
    async with Proxy.to(ff_dsn) as proxy, app.worker(dsn=proxy.dsn, lease_ttl=30):
        await eventually(lambda: len(started) == 10)
        getattr(proxy, fault)()
        gate.set()
        await eventually(lambda: proxy.held_up)
        assert await count(db, "completed") == 0
        proxy.mend()
        results = [await handle.result(timeout=20) for handle in handles]

    assert results == list(range(10))
    assert sorted(started) == list(range(10))
    assert await told_twice(db) == 0


async def test_a_worker_tries_to_connect_at_most_five_times_a_second(
    client: Client, ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it does: handlers with and without a transaction, sweeps, claims, outcomes."""
    app, gate, started = App(), asyncio.Event(), []

    @app.task("ends")
    async def ends(ctx: Ctx) -> None:
        started.append(1)
        await gate.wait()

    @app.task("goes-on")
    async def goes_on(ctx: Ctx) -> None:
        await ctx.transaction()
        started.append(1)
        await asyncio.sleep(60)

    def lost(number: int) -> bool:
        return caplog.text.count("lost the lease") >= number

    await client.submit_many([*(ends.call() for _ in range(8)), *(goes_on.call() for _ in "ab")])
    async with Proxy.to(ff_dsn) as proxy, app.worker(dsn=proxy.dsn, lease_ttl=1.5, drain=0):
        await eventually(lambda: len(started) == 10)
        proxy.cut()
        began = time.monotonic()
        gate.set()  # these have an outcome to record, and are not cancelled
        await eventually(lambda: lost(2))
        await eventually(lambda: proxy.held_up >= 8)
        tries = [at for at in proxy.arrivals if at > began]
        proxy.mend()

    assert max(sum(at <= each < at + 1 for each in tries) for at in tries) <= 5
    assert "cannot renew its leases: TransportError: cannot reach" in caplog.text


async def test_an_answer_that_was_lost_after_the_commit_is_asked_for_again(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, runs = App(), []

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> int:
        runs.append(number)
        if number == 0:
            proxy.lose_answer(is_recorded)
        return number

    async def is_recorded() -> bool:
        return await handle.state() is PublicState.COMPLETED

    async with Proxy.to(ff_dsn) as proxy, app.worker(dsn=proxy.dsn, concurrency=1):
        handle = await client.submit(job.call(0))
        assert await handle.result(timeout=10) == 0  # recorded, and the worker was not told
        after = await client.submit(job.call(1))
        assert await after.result(timeout=15) == 1

    assert runs == [0, 1]
    assert await given.completion_events(db, handle.execution_id) == ["success"]


@pytest.mark.parametrize(
    ("put_down", "state"),
    [(lambda task: task.delay(for_=60), "delayed"), (lambda task: task.release(), "waiting")],
    ids=["delay", "release"],
)
async def test_whoever_put_a_task_down_and_was_not_told_is_not_refused_when_it_asks_again(
    ff_dsn: str, db: Connection, put_down: Callable[[ClaimedTask], Awaitable[Any]], state: str
) -> None:
    execution_id = await given.created(db)

    async def is_recorded() -> bool:
        return await given.public_state(db, execution_id) == state

    async with Proxy.to(ff_dsn) as proxy:
        worker = App().worker(dsn=proxy.dsn, reconcile=False)
        async with contextlib.aclosing(worker.tasks()) as tasks:
            task = await asyncio.wait_for(anext(tasks), 10)
            proxy.lose_answer(is_recorded)
            await put_down(task)

    assert await is_recorded()
    assert [kind for kind, _ in await given.lease_events(db, execution_id)] == [
        "acquired",
        "revoked",
    ]


@pytest.mark.parametrize("fault", ["cut", "silence"])
@pytest.mark.session("counts the sessions of a worker")
async def test_a_worker_that_is_stopped_during_an_outage_ends_all_the_same(
    client: Client, ff_dsn: str, db: Connection, fault: str
) -> None:
    app, started = App(), asyncio.Event()

    @app.task("job")
    async def job(ctx: Ctx) -> None:
        started.set()
        await asyncio.sleep(60)

    async with Proxy.to(ff_dsn) as proxy:
        worker = app.worker(dsn=proxy.dsn, lease_ttl=1, drain=0)
        running = asyncio.create_task(worker.run(handle_signals=False))
        await client.submit(job.call())
        await started.wait()
        getattr(proxy, fault)()
        worker.stop()
        try:
            # Each step of stopping has a timeout, and on a silent connection they add up: the
            # claim 2 s and what it got 2, the outcomes the TTL, leaving the list of waiters 2,
            # four tasks and the listener 2 each, the renewer 2 and a renewal of a third of the TTL,
            # the pool 5.
            await asyncio.wait({running}, timeout=26)
            assert running.done()
        finally:
            proxy.mend()
        await running

    async def disconnected() -> bool:
        return await worker_connections(db) == 0

    await eventually(disconnected)
