"""Stopping in order: what runs may finish, what waits is handed back, nothing is counted twice."""

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from flowfabric import App, Client, Ctx, ExecutionId
from flowfabric.db.rows import Connection
from tests import given
from tests.worker.facts import claim_waits, count, eventually, lease_expired_events, told_twice

pytestmark = pytest.mark.timeout(40)


async def test_stopping_lets_running_handlers_finish_with_their_leases_renewed(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, started, gate = App(), asyncio.Event(), asyncio.Event()

    @app.task("job")
    async def job(ctx: Ctx) -> str:
        started.set()
        await gate.wait()
        return "finished"

    worker = app.worker(dsn=ff_dsn, lease_ttl=1)
    running = asyncio.create_task(worker.run(handle_signals=False))
    handle = await client.submit(job.call())
    await started.wait()
    claimed = await given.row(db, handle.execution_id)
    worker.stop()

    async def renewed() -> bool:
        stored = await given.row(db, handle.execution_id)
        return stored["lease_expires_at_ms"] > claimed["lease_expires_at_ms"] + 1200

    await eventually(renewed)
    late = await client.submit(job.call())
    gate.set()
    await running

    assert await handle.result(timeout=5) == "finished"
    stored = await given.row(db, late.execution_id)
    assert (stored["public_state"], stored["total_attempt_count"]) == ("waiting", 0)


@pytest.mark.timing
async def test_what_was_claimed_ahead_is_handed_back_at_once_and_uncounted(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, gate, started = App(), asyncio.Event(), list[ExecutionId]()

    @app.task("job")
    async def job(ctx: Ctx) -> None:
        started.append(ctx.execution_id)
        await gate.wait()

    async def ahead_of_the_slots() -> bool:
        return await count(db, "active") > 200

    async def only_the_slots() -> bool:
        return await count(db, "active") == 200

    await client.submit_many([job.call() for _ in range(210)])
    worker = app.worker(dsn=ff_dsn, concurrency=200)
    running = asyncio.create_task(worker.run(handle_signals=False))
    await eventually(lambda: len(started) == 200)
    await eventually(ahead_of_the_slots)
    worker.stop()
    await eventually(only_the_slots, within=1)  # while the handlers still run
    gate.set()
    await running

    assert (await count(db, "completed"), await count(db, "waiting")) == (200, 10)
    await app.worker(dsn=ff_dsn).run_until_idle()
    assert await count(db, "completed") == 210
    assert await tallies(db) == [{"attempts": 1, "reclaims": 0, "retries": 0}]
    assert (await told_twice(db), await lease_expired_events(db)) == (0, 0)


async def test_a_claim_that_is_answered_after_the_stop_is_handed_back_while_handlers_finish(
    client: Client, ff_dsn: str, db: Connection, another: Any
) -> None:
    app, gate, started = App(), asyncio.Event(), list[int]()

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> None:
        started.append(number)
        await gate.wait()

    holder = await another()
    worker = app.worker(dsn=ff_dsn, concurrency=10)
    running = asyncio.create_task(worker.run(handle_signals=False))
    await client.submit(job.call(1))
    await eventually(lambda: started == [1])
    async with holder.transaction():
        await holder.execute("LOCK TABLE ff.lease_event IN SHARE MODE")
        late = await client.submit(job.call(2))
        await eventually(lambda: claim_waits(db))
        worker.stop()
    released = [("acquired", None), ("revoked", "released")]

    async def handed_back() -> bool:
        return await given.lease_events(db, late.execution_id) == released

    await eventually(handed_back)  # while the first handler still runs
    gate.set()
    await running

    assert started == [1]
    assert (await count(db, "completed"), await count(db, "waiting")) == (1, 1)


async def tallies(db: Connection) -> list[dict[str, int]]:
    """The different counts that executions have."""
    rows = await db.fetch(
        "SELECT DISTINCT total_attempt_count AS attempts, lease_reclaim_count AS reclaims,"
        " retry_count AS retries FROM ff.execution"
    )
    return [dict(row) for row in rows]


@pytest.mark.timing
async def test_a_handler_that_outlasts_the_drain_is_cancelled_and_handed_back(
    client: Client, ff_dsn: str, db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="flowfabric.worker")
    app, cancelled, started = App(), [], asyncio.Event()

    @app.task("endless")
    async def endless(ctx: Ctx) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(ctx.execution_id)
            raise

    drain = 0.2
    async with app.worker(dsn=ff_dsn, drain=drain):
        handle = await client.submit(endless.call())
        await started.wait()
        ordered = time.monotonic()

    assert time.monotonic() - ordered < drain + 1
    assert "drains: 1 handler runs" in caplog.text
    assert cancelled == [handle.execution_id]
    stored = await given.row(db, handle.execution_id)
    assert stored["public_state"] == "waiting"
    assert (stored["lease_reclaim_count"], stored["retry_count"]) == (0, 0)
    assert await given.lease_events(db, handle.execution_id) == [
        ("acquired", None),
        ("revoked", "released"),
    ]


async def test_a_thread_that_outlasts_the_drain_does_not_hold_the_worker_up(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, gate, started = App(), threading.Event(), threading.Event()

    @app.task("stuck")
    def stuck(ctx: Ctx) -> str:
        started.set()
        gate.wait(20)
        return "too late"

    try:
        worker = app.worker(dsn=ff_dsn, drain=0.2)
        running = asyncio.create_task(worker.run(handle_signals=False))
        handle = await client.submit(stuck.call())
        await eventually(started.is_set)
        worker.stop()
        await asyncio.wait_for(running, 10)  # the thread goes on for twenty seconds
    finally:
        gate.set()

    stored = await given.row(db, handle.execution_id)
    assert (stored["public_state"], stored["lease_reclaim_count"]) == ("waiting", 0)
    assert await given.completion_events(db, handle.execution_id) == []


async def test_a_handler_that_refuses_to_be_cancelled_cannot_end_what_was_handed_back(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, started, runs = App(), asyncio.Event(), []

    @app.task("stubborn")
    async def stubborn(ctx: Ctx) -> str:
        runs.append(ctx.fence.lease_epoch)
        started.set()
        if len(runs) == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return "of the cancelled one"
        return "of the next one"

    async with app.worker(dsn=ff_dsn, drain=0):
        handle = await client.submit(stubborn.call())
        await started.wait()
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=5) == "of the next one"
    assert await given.completion_events(db, handle.execution_id) == ["success"]


async def test_outcomes_that_are_on_their_way_are_recorded_before_the_worker_ends(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, done = App(), 0

    @app.task("quick")
    async def quick(ctx: Ctx, number: int) -> None:
        nonlocal done
        done += 1
        if done == 300:
            worker.stop()

    await client.submit_many(quick.many(range(600)))
    worker = app.worker(dsn=ff_dsn, concurrency=100)
    await worker.run(handle_signals=False)

    completed = await count(db, "completed")
    assert completed == done
    assert 300 <= completed < 600
    assert await count(db, "active") == 0
    assert await tallies_of_waiting(db) == {0}


async def tallies_of_waiting(db: Connection) -> set[int]:
    """The reclaim counts of whatever waits."""
    rows = await db.fetch(
        "SELECT DISTINCT lease_reclaim_count FROM ff.execution WHERE public_state = 'waiting'"
    )
    return {row[0] for row in rows}


@pytest.mark.timing
async def test_an_idle_worker_stops_at_once(ff_dsn: str, db: Connection) -> None:
    worker = App().worker(dsn=ff_dsn)
    running = asyncio.create_task(worker.run(handle_signals=False))
    await eventually(lambda: registered(db))

    began = time.monotonic()
    worker.stop()
    await running

    assert time.monotonic() - began < 1.5
    assert await db.fetchval("SELECT count(*) FROM ff.waiter WHERE topic LIKE 'lane:%'") == 0


async def registered(db: Connection) -> Any:
    return await db.fetchval("SELECT count(*) FROM ff.worker_registry")
