"""An attempt that takes longer than its task allows."""

import asyncio
import threading
from typing import Any

import pytest

from flowfabric import App, Client, Ctx, ExecutionExpired, ExecutionFailed, Retry
from flowfabric.db.rows import Connection
from flowfabric.states import PublicState
from tests import given
from tests.worker.facts import count, database_time, eventually, has_asked

pytestmark = pytest.mark.timeout(30)


async def test_a_handler_that_takes_too_long_is_cancelled_retried_and_expires_in_the_end(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, cancelled = App(), []

    @app.task("slow", timeout=0.15, retry=Retry(max_retries=1, initial=0))
    async def slow(ctx: Ctx) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(ctx.attempt_index)
            raise

    async with app.worker(dsn=ff_dsn, concurrency=1):
        handle = await client.submit(slow.call())
        with pytest.raises(ExecutionExpired, match=r"of 0\.15 s; raise timeout=") as expired:
            await handle.result(timeout=10)

    assert expired.value.reason == "attempt_timeout"
    assert cancelled == [0, 1]
    attempts = await handle.attempts()
    assert [attempt.outcome for attempt in attempts] == ["retry", "expired"]
    assert {attempt.failure_category for attempt in attempts} == {"timeout"}
    assert await given.completion_events(db, handle.execution_id) == ["expired"]


async def test_the_slot_of_a_handler_that_took_too_long_is_free_again(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("slow", timeout=0.1)
    async def slow(ctx: Ctx, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "in time"

    async with app.worker(dsn=ff_dsn, concurrency=1):
        late = await client.submit(slow.call(60))
        punctual = await client.submit(slow.call(0))
        assert await punctual.result(timeout=10) == "in time"

    assert await late.state() is PublicState.EXPIRED


async def test_a_timeout_of_the_handlers_own_is_an_error_like_any_other(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("calls", timeout=30)
    async def calls(ctx: Ctx) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    async with app.worker(dsn=ff_dsn):
        handle = await client.submit(calls.call())
        with pytest.raises(ExecutionFailed) as failed:
            await handle.result(timeout=10)

    assert failed.value.category == "handler_error"
    assert str(failed.value.reason).startswith("TimeoutError")


async def test_a_handler_that_answers_a_timeout_with_another_error_still_expires(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("slow", timeout=0.1)
    async def slow(ctx: Ctx) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise RuntimeError("interrupted") from None

    async with app.worker(dsn=ff_dsn):
        handle = await client.submit(slow.call())
        with pytest.raises((ExecutionExpired, ExecutionFailed)):
            await handle.result(timeout=10)


async def test_where_one_thread_may_be_stuck_its_task_is_not_claimed_until_it_returns(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, gate, lock = App(), threading.Event(), threading.Lock()
    meter: dict[str, Any] = {"now": 0, "most": 0}

    @app.task("stuck", timeout=0.2, retry=Retry(max_retries=5, initial=0))
    def stuck(ctx: Ctx) -> None:
        with lock:
            meter["now"] += 1
            meter["most"] = max(meter["most"], meter["now"])
        gate.wait(10)
        with lock:
            meter["now"] -= 1

    async def timed_out() -> bool:
        stored = await given.row(db, handle.execution_id)
        return stored["retry_count"] >= 1

    async with app.worker(dsn=ff_dsn, concurrency=4, max_stuck_threads=1, lease_ttl=1):
        handle = await client.submit(stuck.call())
        await eventually(timed_out)
        for _ in range(2):  # rounds of its sweeps: what it could start by mistake has started
            since = await database_time(db)
            await eventually(lambda since=since: has_asked(db, "reconcile.find_due", since))
        assert meter["now"] == 1
        gate.set()
        await handle.result(timeout=10)

    assert meter["most"] == 1
    assert await count(db, "completed") == 1
