"""A lease that is gone: the handler learns it, and nothing it does is recorded."""

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from flowfabric import App, Client, Ctx, ExecutionCancelled, ExecutionFailed, LeaseLost
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.ids import ExecutionId
from flowfabric.worker import slots
from tests import given
from tests.worker.facts import count, eventually, lease_expired_events
from tests.worker.proxy import Proxy

pytestmark = pytest.mark.timeout(40)


async def take_lease(db: Connection, execution_id: ExecutionId) -> None:
    """The lease ran out and another holder has the execution now, for a long time."""
    async with db.transaction():
        await lock_executions(db, [execution_id])  # or the sweep passes over it while it is in use
        await db.execute(
            "UPDATE ff.lease SET lease_expires_at_ms = ff.now_ms() - 1"
            " WHERE (partition_key, execution_id) = ($1, $2)",
            execution_id.partition_key,
            execution_id.uuid,
        )
        await expire_leases(db, 10)
        [other] = await claim(db, given.OTHER, ttl=600)
    assert other.lease.execution_id == execution_id


class Watched:
    """A task that waits for its end, and what it saw of it."""

    def __init__(self, app: App) -> None:
        self.seen: list[str] = []
        self.started, self.gate = asyncio.Event(), asyncio.Event()

        @app.task("job")
        async def job(ctx: Ctx) -> str:
            self.started.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.seen.append("cancelled")
                raise
            self.seen.append("finished")
            return "mine"

        @app.task("next")
        async def following(ctx: Ctx) -> str:
            return "next"

        self.task, self.next = job, following


@pytest.mark.timing
async def test_without_notifications_the_next_renewal_cancels_a_handler(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    """There is one every third of the TTL, wherever the decision was made."""
    app = App()
    watched = Watched(app)

    async with app.worker(dsn=ff_dsn, lease_ttl=1.5, concurrency=1, listen=False):
        handle = await client.submit(watched.task.call())
        await watched.started.wait()
        async with db.transaction():  # as in another process
            await cancel_execution(db, handle.execution_id, reason="changed my mind")
        await eventually(lambda: watched.seen, within=1.5)
        after = await client.submit(watched.next.call())
        assert await after.result(timeout=5) == "next"

    assert watched.seen == ["cancelled"]
    with pytest.raises(ExecutionCancelled, match="changed my mind") as ended:
        await handle.result(timeout=5)
    assert ended.value.cancelled_by == "operator_override"


@pytest.mark.timing
async def test_a_lease_taken_by_another_cancels_the_handler(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    watched = Watched(app)

    async with app.worker(dsn=ff_dsn, lease_ttl=1.5, concurrency=1):
        handle = await client.submit(watched.task.call())
        await watched.started.wait()
        await take_lease(db, handle.execution_id)
        await eventually(lambda: watched.seen, within=1.5)
        after = await client.submit(watched.next.call())
        assert await after.result(timeout=5) == "next"

    assert watched.seen == ["cancelled"]
    stored = await given.row(db, handle.execution_id)
    assert (stored["public_state"], stored["worker_instance_id"]) == ("active", "w-2")


async def test_a_worker_may_take_up_again_what_it_lost(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, epochs = App(), []

    @app.task("job")
    async def job(ctx: Ctx) -> str:
        epochs.append(ctx.fence.lease_epoch)
        if len(epochs) == 1:
            await asyncio.sleep(60)
        return "second"

    async with app.worker(dsn=ff_dsn, lease_ttl=1, concurrency=2):
        handle = await client.submit(job.call())
        await eventually(lambda: epochs)
        await db.execute("UPDATE ff.lease SET lease_expires_at_ms = 1")
        assert await handle.result(timeout=10) == "second"

    assert len(epochs) == 2
    assert epochs[0] < epochs[1]
    assert await given.completion_events(db, handle.execution_id) == ["success"]
    assert (await given.row(db, handle.execution_id))["lease_reclaim_count"] == 1


async def test_with_ignore_the_handler_goes_on_but_its_result_is_not_recorded(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, told = App(), []
    finished = asyncio.Event()

    @app.task("job")
    async def job(ctx: Ctx) -> str:
        told.append(ctx.lease.healthy)
        await ctx.lease.lost.wait()
        told.append(ctx.lease.healthy)
        finished.set()
        return "too late"

    async with app.worker(dsn=ff_dsn, lease_ttl=1, on_lease_lost="ignore"):
        handle = await client.submit(job.call())
        await eventually(lambda: told)
        await take_lease(db, handle.execution_id)
        async with asyncio.timeout(5):
            await finished.wait()

    assert told == [True, False]
    stored = await given.row(db, handle.execution_id)
    assert (stored["public_state"], stored["worker_instance_id"]) == ("active", "w-2")
    assert await given.completion_events(db, handle.execution_id) == []


@pytest.mark.parametrize("call", ["check", "progress"])
async def test_a_thread_learns_it_at_its_next_call_of_the_context(
    client: Client, ff_dsn: str, call: str
) -> None:
    app, learned, started = App(), threading.Event(), threading.Event()

    @app.task("job")
    def job(ctx: Ctx) -> None:
        started.set()
        try:
            while True:
                time.sleep(0.02)
                getattr(ctx.sync, call)()
        except LeaseLost:
            learned.set()
            raise

    @app.task("next")
    async def following(ctx: Ctx) -> str:
        return "next"

    async with app.worker(dsn=ff_dsn, lease_ttl=60, concurrency=1):
        handle = await client.submit(job.call())
        await eventually(started.is_set)
        await handle.cancel()
        await eventually(learned.is_set)
        after = await client.submit(following.call())
        assert await after.result(timeout=5) == "next"


@pytest.mark.direct("a server tells of the lost lease at once")
async def test_a_refused_call_of_the_context_ends_the_attempt_and_frees_the_slot(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    watched, learned = Watched(app), []

    @app.task("works")
    async def works(ctx: Ctx) -> None:
        watched.started.set()
        await watched.gate.wait()
        try:
            await ctx.progress(50)
        except LeaseLost as lost:
            learned.append(str(lost))
            raise

    async with app.worker(dsn=ff_dsn, lease_ttl=30, concurrency=1, listen=False):
        handle = await client.submit(works.call())
        await watched.started.wait()
        await take_lease(db, handle.execution_id)
        watched.gate.set()  # long before the next renewal
        after = await client.submit(watched.next.call())
        assert await after.result(timeout=5) == "next"

    assert len(learned) == 1
    assert "superseded" in learned[0]
    assert (await given.row(db, handle.execution_id))["worker_instance_id"] == "w-2"


@pytest.mark.parametrize("how", ["returns", "raises"])
async def test_a_handler_that_swallows_its_cancellation_does_not_spoil_the_next_of_its_slot(
    client: Client, ff_dsn: str, db: Connection, how: str
) -> None:
    app, gate = App(), asyncio.Event()

    @app.task("stubborn")
    async def stubborn(ctx: Ctx) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await gate.wait()
        if how == "raises":
            raise RuntimeError("annoyed")

    @app.task("cancels")
    async def cancels(ctx: Ctx) -> None:
        raise asyncio.CancelledError

    async def all_claimed() -> bool:
        return await count(db, "active") == 65

    stubborn_ones = await client.submit_many([stubborn.call() for _ in range(64)])
    buffered = await client.submit(cancels.call())
    async with app.worker(dsn=ff_dsn, lease_ttl=1, concurrency=64, drain=0.5):
        await eventually(all_claimed)  # 64 in the slots, one behind them
        await stubborn_ones[0].cancel()
        with pytest.raises(ExecutionFailed):
            await buffered.result(timeout=5)
        gate.set()

    assert await given.completion_events(db, stubborn_ones[0].execution_id) == ["cancelled"]


async def test_a_handler_that_does_not_end_gives_up_its_slot(
    client: Client, ff_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slots, "CLEAN_UP_WITHIN", 0.2)
    app, began, gate = App(), asyncio.Event(), asyncio.Event()

    @app.task("endless")
    async def endless(ctx: Ctx) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await gate.wait()

    @app.task("next")
    async def next_one(ctx: Ctx) -> str:
        return "done"

    stuck = await client.submit(endless.call())
    async with app.worker(dsn=ff_dsn, concurrency=1):
        await began.wait()
        waiting = await client.submit(next_one.call())
        await stuck.cancel()
        assert await waiting.result(timeout=10) == "done"
        assert await (await client.submit(next_one.call())).result(timeout=10) == "done"
        gate.set()

    assert "its slot is given up" in caplog.text


async def test_a_handler_that_outlives_its_lease_many_times_over_keeps_it(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, gate, ttl = App(), asyncio.Event(), 1.0

    @app.task("long")
    async def long(ctx: Ctx) -> str:
        await gate.wait()
        return "first"

    async def renewals() -> list[int]:
        history = await given.lease_history(db, handle.execution_id)
        return [each["occurred_at_ms"] for each in history if each["event_type"] == "renewed"]

    async def renewed_often() -> bool:
        return len(await renewals()) >= 7

    async with app.worker(dsn=ff_dsn, lease_ttl=ttl, lease_history="full"):
        handle = await client.submit(long.call())
        await eventually(renewed_often)
        gate.set()
        assert await handle.result(timeout=10) == "first"

    first, *_, last = (await renewals())[:7]
    assert last - first > 5 * ttl / 3 * 1000  # no more often than every third of the TTL
    assert await lease_expired_events(db) == 0


@pytest.mark.timing
@pytest.mark.parametrize("fault", ["cut", "silence"])
async def test_without_the_database_a_handler_is_stopped_before_its_lease_can_pass_on(
    client: Client, ff_dsn: str, fault: str
) -> None:
    app, ttl = App(), 3.0
    times: dict[str, Any] = {}

    @app.task("job")
    async def job(ctx: Ctx) -> str:
        if "stopped" in times:
            return "again"
        times["started"] = time.monotonic()
        try:
            await asyncio.sleep(60)
        finally:
            times["stopped"] = time.monotonic()
        return "never"

    async with Proxy.to(ff_dsn) as proxy, app.worker(dsn=proxy.dsn, lease_ttl=ttl):
        handle = await client.submit(job.call())
        await eventually(lambda: times)
        getattr(proxy, fault)()
        await eventually(lambda: "stopped" in times, within=ttl + 1)
        proxy.mend()
        assert await handle.result(timeout=15) == "again"

    held_for = times["stopped"] - times["started"]
    assert 0.5 * ttl < held_for < 0.95 * ttl


async def test_a_handler_that_says_so_while_it_holds_its_lease_has_failed(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("wrong")
    async def wrong(ctx: Ctx) -> None:
        raise LeaseLost("of something else")

    async with app.worker(dsn=ff_dsn, lease_ttl=1, drain=0.5):
        handle = await client.submit(wrong.call())
        with pytest.raises(ExecutionFailed, match="of something else"):
            await handle.result(timeout=5)
