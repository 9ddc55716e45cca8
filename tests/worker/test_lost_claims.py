"""A claim whose answer is lost: the worker asks what it got, and runs it or hands it back."""

import asyncio
import contextlib
import time
from typing import Any
from uuid import uuid4

import pytest

from flowfabric import App, Client, Ctx
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.states import PublicState
from tests import given
from tests.worker.facts import claim_waits, count, eventually, is_idle
from tests.worker.proxy import Proxy

pytestmark = pytest.mark.timeout(40)


async def any_active(db: Connection) -> bool:
    return await count(db, "active") > 0


@pytest.mark.timing
@pytest.mark.session("waits until the worker listens")
@pytest.mark.parametrize("slots", [1, 64])
async def test_what_was_claimed_without_an_answer_starts_within_two_seconds(
    client: Client, ff_dsn: str, db: Connection, another: Any, slots: int
) -> None:
    app, started, watcher = App(), [], await another()

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> int:
        started.append(time.monotonic())
        return number

    async with Proxy.to(ff_dsn) as proxy, app.worker(dsn=proxy.dsn, concurrency=slots):
        await eventually(lambda: is_idle(db))
        proxy.lose_answer(lambda: any_active(watcher))
        handles = await client.submit_many(job.many(range(slots)))
        submitted = time.monotonic()
        assert [await each.result(timeout=20) for each in handles] == list(range(slots))

    assert len(started) == slots
    assert max(started) - submitted < 2.0
    for each in handles:
        assert await given.completion_events(db, each.execution_id) == ["success"]
        stored = await given.row(db, each.execution_id)
        assert (stored["lease_reclaim_count"], stored["total_attempt_count"]) == (0, 1)


@pytest.mark.session("waits until the worker listens")
async def test_a_claim_that_is_committed_after_its_connection_was_lost_is_found_too(
    client: Client, ff_dsn: str, db: Connection, another: Any
) -> None:
    """The server goes on with a statement whose client is gone, until it has an answer to send."""
    app, started = App(), []

    @app.task("job")
    async def job(ctx: Ctx) -> None:
        started.append(ctx.fence.lease_epoch)

    holder = await another()
    async with Proxy.to(ff_dsn) as proxy, app.worker(dsn=proxy.dsn):
        await eventually(lambda: is_idle(db))
        async with holder.transaction():
            await holder.execute("LOCK TABLE ff.lease_event IN SHARE MODE")
            handle = await client.submit(job.call())
            await eventually(lambda: claim_waits(db))
            asked = len(proxy.arrivals)
            proxy.cut()
            proxy.mend()
            await eventually(lambda: len(proxy.arrivals) > asked)
        await handle.result(timeout=10)

    assert len(started) == 1
    assert (await given.row(db, handle.execution_id))["lease_reclaim_count"] == 0


async def test_tasks_that_are_run_by_hand_are_found_too(
    ff_dsn: str, db: Connection, another: Any
) -> None:
    execution_id, watcher = await given.created(db), await another()

    async with Proxy.to(ff_dsn) as proxy:
        proxy.lose_answer(lambda: any_active(watcher))
        worker = App().worker(dsn=proxy.dsn, reconcile=False, concurrency=1)
        async with contextlib.aclosing(worker.tasks()) as tasks:
            task = await asyncio.wait_for(anext(tasks), 10)
            await task.complete()

    assert await given.public_state(db, execution_id) == PublicState.COMPLETED
    assert (await given.row(db, execution_id))["lease_epoch"] == 1


async def test_what_there_is_no_slot_for_is_handed_back(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    """The slot was given to another execution before the answer was missed."""
    app, gate = App(), asyncio.Event()

    @app.task("job")
    async def job(ctx: Ctx) -> int:
        await gate.wait()
        return ctx.fence.lease_epoch

    worker = app.worker(dsn=ff_dsn, concurrency=1)
    async with worker:
        first = await client.submit(job.call())
        await eventually(lambda: any_active(db))
        second = await client.submit(job.call())
        lease_id = uuid4()
        assert await claim(db, worker._claims.claimant(), ttl=30, lease_id=lease_id)
        worker._unanswered.add(lease_id, time.monotonic())

        async def is_handed_back() -> bool:
            return await second.state() is PublicState.WAITING

        await eventually(is_handed_back)
        gate.set()
        assert await first.result(timeout=10) == 1
        assert await second.result(timeout=10) > 1

    assert (await given.row(db, second.execution_id))["lease_reclaim_count"] == 0


@pytest.mark.session("waits until the worker listens")
async def test_a_worker_that_stops_hands_back_what_it_claimed_without_an_answer(
    client: Client, ff_dsn: str, db: Connection, another: Any
) -> None:
    app, started, watcher = App(), [], await another()

    @app.task("job")
    async def job(ctx: Ctx) -> None:
        started.append(ctx.execution_id)

    async def claimed_at_the_moment_of_the_stop() -> bool:
        if not await any_active(watcher):
            return False
        worker.stop()
        return True

    async with Proxy.to(ff_dsn) as proxy:
        worker = app.worker(dsn=proxy.dsn)
        async with worker:
            await eventually(lambda: is_idle(db))
            proxy.lose_answer(claimed_at_the_moment_of_the_stop)
            handle = await client.submit(job.call())
            await eventually(lambda: any_active(db))

    assert started == []
    assert await handle.state() is PublicState.WAITING
