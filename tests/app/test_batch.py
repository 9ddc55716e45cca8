"""Batch handlers: one call for many executions, and an outcome of its own for each."""

from __future__ import annotations

import time
from typing import Any

import pytest

from flowfabric import (
    App,
    Batch,
    BatchCtx,
    Client,
    ConfigError,
    Ctx,
    ExecutionCancelled,
    ExecutionFailed,
    Fail,
    Retry,
)
from flowfabric.db.rows import Connection
from flowfabric.errors import ValidationError
from flowfabric.states import PublicState
from tests.worker.facts import eventually

pytestmark = pytest.mark.timeout(60)


async def test_executions_are_handled_together_and_end_apart(ff_dsn: str) -> None:
    app, sizes, tried = App(), list[int](), list[int]()

    @app.task("double", batch=Batch(size=4, wait=0.05), retry=Retry(max_retries=1, initial=0))
    async def double(ctx: BatchCtx, items: list[int]) -> list[int | Fail]:
        assert len(ctx.execution_ids) == len(items)
        sizes.append(len(items))
        busy = tried.count(4) == 0
        tried.extend(items)
        return [
            Fail("odd", retryable=False)
            if item % 2
            else (Fail("busy") if item == 4 and busy else 2 * item)
            for item in items
        ]

    async with await Client.connect(ff_dsn) as client:
        handles = await client.submit_many(double.many(range(10)))
        await app.worker(dsn=ff_dsn).run_until_idle()

        assert sum(sizes) == 11, "one is tried again"
        assert max(sizes) == 4
        assert [len(await each.attempts()) for each in handles[3:6]] == [1, 2, 1]
        assert [await each.result() for each in handles[::2]] == [0, 4, 8, 12, 16]
        for each in handles[1::2]:
            with pytest.raises(ExecutionFailed, match="odd"):
                await each.result()


async def test_an_exception_fails_all_of_the_call(ff_dsn: str) -> None:
    app = App()

    @app.task("broken", batch=Batch(size=3))
    async def broken(ctx: BatchCtx, items: list[str]) -> None:
        raise ValueError("no")

    @app.task("short", batch=Batch(size=3))
    async def short(ctx: BatchCtx, items: list[str]) -> list[int]:
        return []

    @app.task("durable", batch=Batch(size=1))
    async def durable(ctx: Any, items: list[str]) -> None:
        await ctx.step("charge", len, items)

    async with await Client.connect(ff_dsn) as client:
        calls = [*broken.many("abc"), *short.many("abc"), durable.call("a")]
        handles = await client.submit_many(calls)
        await app.worker(dsn=ff_dsn).run_until_idle()

        assert [await each.state() for each in handles] == [PublicState.FAILED] * 7
        with pytest.raises(ExecutionFailed, match=r"a batch handler has no ctx\.step"):
            await handles[6].result()
        with pytest.raises(ExecutionFailed, match="returned 0 results"):
            await handles[5].result()


async def test_keys_of_a_limit_are_not_mixed(ff_dsn: str) -> None:
    app, calls = App(), list[set[str]]()
    limit = app.limit("per-tenant", concurrency=10)

    @app.task("index", batch=Batch(size=10, wait=0.05), limit=limit, limit_key=lambda item: item)
    async def index(ctx: BatchCtx, items: list[str]) -> None:
        calls.append(set(items))

    async with await Client.connect(ff_dsn) as client:
        handles = await client.submit_many(index.many("abababab"))
        await app.worker(dsn=ff_dsn).run_until_idle()
        assert [await each.state() for each in handles] == [PublicState.COMPLETED] * 8

    assert all(len(each) == 1 for each in calls)
    assert {"a"} in calls


async def test_executions_that_wait_for_their_batch_keep_their_leases(
    ff_dsn: str, db: Connection
) -> None:
    app, calls = App(), list[list[int]]()

    @app.task("index", batch=Batch(size=3, wait=3600))
    async def index(ctx: BatchCtx, items: list[int]) -> None:
        calls.append(sorted(items))

    async with await Client.connect(ff_dsn) as client, app.worker(dsn=ff_dsn, lease_ttl=1):
        handles = await client.submit_many(index.many((1, 2)))
        first = await eventually(lambda: lease_ends(db, 2))
        await eventually(lambda: lease_ends(db, 2, after=max(first) + 1000))
        assert calls == []

        handles.append(await client.submit(index.call(3)))
        for each in handles:
            await each.result(timeout=20)
            assert len(await each.attempts()) == 1

    assert calls == [[1, 2, 3]]


async def lease_ends(db: Connection, wanted: int, *, after: int = 0) -> list[int]:
    """When the leases end, if there are as many as wanted and all of them end after that."""
    rows = await db.fetch("SELECT lease_expires_at_ms FROM ff.lease")
    ends = [row[0] for row in rows if row[0] > after]
    return ends if len(ends) == wanted else []


async def test_one_that_is_cancelled_leaves_its_batch_and_the_next_waits_its_own_time(
    ff_dsn: str, db: Connection
) -> None:
    app, calls = App(), list[list[int]]()

    @app.task("index", batch=Batch(size=2, wait=1))
    async def index(ctx: BatchCtx, items: list[int]) -> None:
        calls.append(items)

    async with await Client.connect(ff_dsn) as client, app.worker(dsn=ff_dsn, concurrency=1):
        leaves = await client.submit(index.call(1))
        await eventually(lambda: lease_ends(db, 1))
        await leaves.cancel(reason="not needed")
        with pytest.raises(ExecutionCancelled):
            await leaves.result(timeout=20)

        second = await client.submit(index.call(2))
        began = time.monotonic()
        await second.result(timeout=20)

    assert calls == [[2]]
    assert time.monotonic() - began >= 1


def test_what_cannot_be_a_batch_handler_is_refused() -> None:
    app = App()
    for size, wait in ((0, 1), (1001, 1), (True, 1), (2.0, 1), (5, -1)):
        with pytest.raises(ValidationError):
            Batch(size=size, wait=wait)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be a Batch"):
        app.task("x", batch=5)  # type: ignore[arg-type]

    def plain(ctx: BatchCtx, items: list[int]) -> None: ...
    async def single(ctx: BatchCtx) -> None: ...
    async def no_list(ctx: BatchCtx, items: int) -> None: ...
    async def with_ctx(ctx: Ctx, items: list[int]) -> None: ...

    for number, function in enumerate((plain, single, no_list, with_ctx)):
        with pytest.raises(ConfigError, match="async def f"):
            app.task(f"x{number}", batch=Batch(size=2))(function)  # type: ignore[arg-type]
