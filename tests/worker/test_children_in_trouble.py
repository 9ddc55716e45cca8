"""Children of a handler that crashes, is cancelled, loses its lease or does not play along."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from flowfabric import (
    App,
    ChildFailed,
    Client,
    Ctx,
    Depends,
    ExecutionCancelled,
    ExecutionFailed,
    Fail,
    LeaseLost,
    NonDeterministicReplay,
    Retry,
)
from flowfabric.db.rows import Connection
from flowfabric.ids import ExecutionId, child_id
from flowfabric.states import PublicState
from tests import given
from tests.worker import crunching
from tests.worker.facts import count, eventually, told_twice
from tests.worker.proxy import Proxy
from tests.worker.test_children import Site
from tests.worker.test_lease_loss import take_lease

pytestmark = pytest.mark.timeout(60)


async def states(db: Connection) -> dict[str, int]:
    """How many executions there are of each kind and state."""
    rows = await db.fetch(
        "SELECT execution_kind || ' ' || public_state AS what, count(*) AS many"
        " FROM ff.execution JOIN ff.route USING (route_id) GROUP BY 1"
    )
    return {row["what"]: row["many"] for row in rows}


# Crash and resume.


async def test_another_worker_takes_up_a_parent_and_finds_its_children(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, runs = App(), []
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        runs.append(ctx.fence.lease_epoch)
        one = await ctx.spawn(site.square.call(3))
        if len(runs) == 1:
            await asyncio.sleep(600)  # the line is cut meanwhile
        return [await one.result(), *await ctx.gather(site.square.many([4, 5]))]

    handle = await client.submit(parent.call())
    async with (
        Proxy.to(ff_dsn) as proxy,
        app.worker(dsn=proxy.dsn, lease_ttl=1, concurrency=1, drain=0),
    ):
        await eventually(lambda: _there(db, handle.execution_id))
        proxy.cut()
        async with app.worker(dsn=ff_dsn, lease_ttl=5):
            assert await handle.result(timeout=20) == [9, 16, 25]
        proxy.mend()

    assert len(runs) >= 2
    assert await states(db) == {"parent completed": 1, "square completed": 3}
    assert await told_twice(db) == 0


async def _there(db: Connection, parent: ExecutionId) -> bool:
    return await db.fetchval(
        "SELECT EXISTS (SELECT FROM ff.edge_group WHERE waiter_eid = $1 AND waits_as = 'children')",
        parent.uuid,
    )


async def test_a_later_attempt_of_the_parent_does_not_run_its_children_again(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent", retry=Retry(max_retries=2, initial=0))
    async def parent(ctx: Ctx) -> list[int]:
        squares = await ctx.gather(site.square.many(range(4)))
        if ctx.attempt_index == 0:
            raise RuntimeError("after all that work")
        return squares

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == [0, 1, 4, 9]

    assert sorted(site.ran) == [0, 1, 2, 3]
    assert await states(db) == {"parent completed": 1, "square completed": 4}


@pytest.mark.parametrize("lost", ["edge_group", "attempt"], ids=["spawn", "wait"])
async def test_an_answer_that_is_lost_costs_nothing_but_time(
    client: Client, ff_dsn: str, db: Connection, lost: str
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather(site.square.many(range(3)))

    async def written() -> bool:
        return await db.fetchval(f"SELECT EXISTS (SELECT FROM ff.{lost})")

    async with Proxy.to(ff_dsn) as proxy:
        proxy.lose_answer(written)
        handle = await client.submit(parent.call())
        async with app.worker(dsn=proxy.dsn, lease_ttl=5, concurrency=1):
            assert await handle.result(timeout=30) == [0, 1, 4]

    assert await states(db) == {"parent completed": 1, "square completed": 3}
    assert await told_twice(db) == 0


# Cancel.


async def test_cancelling_a_parent_that_waits_cancels_its_children(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    site = Site(app)

    @app.task("below")
    async def below(ctx: Ctx) -> int:
        return await ctx.race(site.stuck.call())

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather([site.stuck.call(), site.square.call(1), below.call()])

    handle = await client.submit(parent.call())
    running = {"stuck active": 2, "below waiting_children": 1, "square completed": 1}
    async with app.worker(dsn=ff_dsn, lease_ttl=1.5):
        await eventually(lambda: _stand(db, {"parent waiting_children": 1, **running}), within=20)
        await handle.cancel("changed my mind")
        with pytest.raises(ExecutionCancelled):
            await handle.result(timeout=20)
        cancelled = {"stuck cancelled": 2, "below cancelled": 1, "square completed": 1}
        await eventually(lambda: _stand(db, {"parent cancelled": 1, **cancelled}), within=20)


async def _stand(db: Connection, wanted: dict[str, int]) -> bool:
    return await states(db) == wanted


async def test_a_parent_that_was_cancelled_can_be_replayed_with_its_children(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather([site.stuck.call(), site.square.call(2), site.stuck.call()])

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn, lease_ttl=1.5):
        running = {"parent waiting_children": 1, "stuck active": 2, "square completed": 1}
        await eventually(lambda: _stand(db, running), within=20)
        await handle.cancel()
        ended = {"parent cancelled": 1, "stuck cancelled": 2, "square completed": 1}
        await eventually(lambda: _stand(db, ended), within=20)
        await handle.replay()
        await eventually(lambda: _stand(db, running), within=20)
        site.gate.set()
        assert await handle.result(timeout=20) == [-1, 4, -1]

    assert site.ran == [2]


async def test_a_failed_child_is_mended_by_replaying_it_and_then_its_parent(
    client: Client, ff_dsn: str
) -> None:
    app, mended = App(), asyncio.Event()
    site = Site(app)

    @app.task("shaky")
    async def shaky(ctx: Ctx) -> int:
        await client.handle(sibling).result(timeout=20)  # it is recorded, and does not run again
        if not mended.is_set():
            raise Fail("no power", retryable=False)
        return 7

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather([site.square.call(2), shaky.call()])

    handle = await client.submit(parent.call())
    sibling = child_id(handle.execution_id, 0, 0, kind="square")
    async with app.worker(dsn=ff_dsn):
        with pytest.raises(ExecutionFailed, match="no power"):
            await handle.result(timeout=20)
        child = client.handle(child_id(handle.execution_id, 0, 1, kind="shaky"))
        mended.set()
        await child.replay()
        assert await child.result(timeout=20) == 7
        await handle.replay()
        assert await handle.result(timeout=20) == [4, 7]

    assert site.ran == [2]


# A lease that is gone.


@pytest.mark.parametrize("how", ["gather", "race", "spawn", "detached"])
@pytest.mark.direct("a server notifies the worker")
async def test_a_parent_that_lost_its_lease_gets_no_children(
    client: Client, ff_dsn: str, db: Connection, how: str
) -> None:
    app, learned, gate = App(), [], asyncio.Event()
    started = asyncio.Event()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> None:
        started.set()
        await gate.wait()
        try:
            match how:
                case "gather":
                    await ctx.gather(site.square.many(range(3)))
                case "race":
                    await ctx.race(site.square.call(1))
                case _:
                    await ctx.spawn(site.square.call(1), detached=how == "detached")
        except LeaseLost as lost:
            learned.append((str(lost), ctx.lease.healthy))

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn, lease_ttl=30, concurrency=1, listen=False):
        await started.wait()
        await take_lease(db, handle.execution_id)
        gate.set()  # long before the next renewal
        after = await client.submit(site.square.call(9))
        assert await after.result(timeout=5) == 81

    [(why, healthy)] = learned
    assert "superseded" in why
    assert not healthy
    stored = await given.row(db, handle.execution_id)
    assert (stored["public_state"], stored["worker_instance_id"]) == ("active", "w-2")
    assert await count(db) == 2
    assert await db.fetchval("SELECT count(*) FROM ff.flow_core") == 0


async def test_a_parent_that_lost_its_lease_after_it_had_children_does_not_wait(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, gate, learned = App(), asyncio.Event(), []
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> None:
        child = await ctx.spawn(site.square.call(1))
        await gate.wait()
        with pytest.raises(LeaseLost):
            await child.result()
        learned.append(True)

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn, lease_ttl=30, listen=False):
        await eventually(lambda: site.ran)
        await take_lease(db, handle.execution_id)
        gate.set()
        await eventually(lambda: learned)

    assert (await given.row(db, handle.execution_id))["worker_instance_id"] == "w-2"


# Handlers that do not play along.


@pytest.mark.parametrize("then", ["returns", "raises", "waits again", "reports"])
async def test_a_handler_that_swallows_everything_still_waits(
    client: Client, ff_dsn: str, db: Connection, then: str
) -> None:
    app, swallowed = App(), []
    site = Site(app)

    @app.task("parent", retry=Retry(max_retries=3, initial=0))
    async def parent(ctx: Ctx) -> Any:
        try:
            return await ctx.gather(site.square.many(range(3)))
        except BaseException as error:
            swallowed.append(type(error).__name__)
        match then:
            case "raises":
                raise RuntimeError("annoyed")
            case "waits again":
                return await ctx.gather(site.square.many(range(2)))
            case "reports":
                await ctx.progress(50)
        return "nothing"

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn, concurrency=1):
        assert await handle.result(timeout=20) == [0, 1, 4]

    assert swallowed == ["AttemptSuspended"]
    assert len(await handle.attempts()) == 1
    assert await states(db) == {"parent completed": 1, "square completed": 3}


async def test_dependencies_and_middleware_see_every_run(client: Client, ff_dsn: str) -> None:
    app, seen = App(), []
    site = Site(app)

    async def opened() -> AsyncGenerator[str]:
        seen.append("open")
        try:
            yield "resource"
        finally:
            seen.append("close")

    @app.middleware
    async def around(ctx: Ctx, call_next: Any) -> Any:
        with contextlib.suppress(ValueError):
            return await call_next()

    @app.task("parent")
    async def parent(ctx: Ctx, resource: str = Depends(opened)) -> int:
        [one] = await ctx.gather([site.square.call(5)])
        return one

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == 25

    assert seen == ["open", "close"] * 2


async def test_a_handler_that_asks_for_something_else_the_second_time_waits_for_an_operator(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, runs, told = App(), [], []
    site = Site(app)

    @app.task("parent", on_divergence="suspend")
    async def parent(ctx: Ctx) -> list[int]:
        runs.append(1)
        try:
            return await ctx.gather(site.square.many(range(4 if len(runs) == 2 else 3)))
        except NonDeterministicReplay as error:
            told.append(str(error))
            raise

    handle = await client.submit(parent.call())

    async def waits() -> bool:
        row = await given.row(db, handle.execution_id)
        return row["public_state"] == "suspended" and "children#0" in row["blocking_detail"]

    async with app.worker(dsn=ff_dsn):
        await eventually(waits, within=20)
        await client.engine.resume_execution(handle.execution_id)
        assert await handle.result(timeout=20) == [0, 1, 4]

    assert len(told) == 1
    assert await states(db) == {"parent completed": 1, "square completed": 3}


async def test_a_task_may_fail_if_its_handler_asks_for_something_else_the_second_time(
    client: Client, ff_dsn: str
) -> None:
    app, runs = App(), []
    site = Site(app)

    @app.task("parent", on_divergence="fail", retry=Retry(max_retries=3))
    async def parent(ctx: Ctx) -> None:
        runs.append(1)
        await ctx.gather(site.square.many(range(2 + len(runs))))

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        with pytest.raises(ExecutionFailed, match="the handler made other calls") as failed:
            await handle.result(timeout=20)

    assert failed.value.category == "non_deterministic_replay"
    assert len(runs) == 2


async def test_time_that_is_waited_does_not_count(client: Client, ff_dsn: str) -> None:
    app = App()

    @app.task("slow")
    async def slow(ctx: Ctx) -> int:
        await asyncio.sleep(1.2)
        return 1

    @app.task("parent", timeout=1)
    async def parent(ctx: Ctx) -> int:
        return sum(await ctx.gather([slow.call(), slow.call()]))

    handle = await client.submit(parent.call())
    began = time.monotonic()
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == 2

    assert time.monotonic() - began > 1.2


async def test_a_process_of_its_own_has_no_children(client: Client, ff_dsn: str) -> None:
    handle = await client.submit(crunching.breeds.call())
    async with crunching.app.worker(dsn=ff_dsn, drain=0.5):
        with pytest.raises(ExecutionFailed, match="cannot have children"):
            await handle.result(timeout=20)

    assert len(await handle.attempts()) == 1


async def test_a_child_that_is_replayed_while_its_parent_goes_on_is_waited_for(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, gate = App(), asyncio.Event()
    site = Site(app)
    tries: list[int] = []

    @app.task("twice")
    async def twice(ctx: Ctx) -> int:
        tries.append(1)
        if len(tries) > 1:
            await gate.wait()
        return len(tries)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        [first] = await ctx.gather([twice.call()])
        [second] = await ctx.gather([site.stuck.call()])
        return [first, second]

    handle = await client.submit(parent.call())
    child = client.handle(child_id(handle.execution_id, 0, 0, kind="twice"))
    stuck = child_id(handle.execution_id, 1, 0, kind="stuck")

    async def begun() -> bool:
        found = await client.engine.read_execution_state(stuck)
        return found is PublicState.ACTIVE

    async with app.worker(dsn=ff_dsn):
        await eventually(begun)
        await child.replay()
        await eventually(lambda: len(tries) == 2)
        site.gate.set()
        await eventually(lambda: _delayed(db, handle.execution_id))
        gate.set()
        assert await handle.result(timeout=20) == [2, -1]


async def _delayed(db: Connection, execution_id: ExecutionId) -> bool:
    return await given.public_state(db, execution_id) is PublicState.DELAYED


async def test_a_child_that_failed_when_it_was_decided_has_failed_whatever_became_of_it(
    client: Client, ff_dsn: str
) -> None:
    app, reasons = App(), []
    site = Site(app)
    mended = asyncio.Event()

    @app.task("shaky")
    async def shaky(ctx: Ctx) -> int:
        if not mended.is_set():
            raise Fail("no power", retryable=False)
        return 7

    @app.task("parent")
    async def parent(ctx: Ctx) -> int:
        try:
            await ctx.gather([shaky.call()])
        except ChildFailed as error:
            reasons.append(error.reason)
        return await ctx.race(site.stuck.call())

    handle = await client.submit(parent.call())
    child = client.handle(child_id(handle.execution_id, 0, 0, kind="shaky"))
    async with app.worker(dsn=ff_dsn):
        await eventually(lambda: reasons)
        mended.set()
        await child.replay()
        assert await child.result(timeout=20) == 7
        site.gate.set()
        assert await handle.result(timeout=20) == -1

    assert set(reasons) == {"no power", "the child was replayed since it failed"}
