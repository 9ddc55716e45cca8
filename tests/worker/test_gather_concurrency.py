"""`ctx.gather(calls, concurrency=n)`: never more than n children at a time, whatever happens."""

import asyncio
import contextlib
from typing import Any

import pytest

from flowfabric import (
    App,
    ChildFailed,
    Client,
    Ctx,
    ExecutionCancelled,
    ExecutionFailed,
    Fail,
    NonDeterministicReplay,
    Retry,
    ValidationError,
)
from flowfabric.db.rows import Connection
from flowfabric.ids import ExecutionId, child_id, parent_flow_id
from flowfabric.states import PublicState
from tests import given
from tests.engine.joins.invariants import broken_invariants
from tests.worker.facts import count, eventually, told_twice
from tests.worker.proxy import Proxy
from tests.worker.test_children import Site
from tests.worker.test_children_in_trouble import states

pytestmark = pytest.mark.timeout(60)


class Crowd:
    """Children that wait to be let go, each by its number; what they did, and how many at once."""

    def __init__(self, app: App) -> None:
        self.began: list[int] = []
        self.running: set[int] = set()
        self.most = 0
        self.gates: dict[int, asyncio.Event] = {}

        @app.task("guest")
        async def guest(ctx: Ctx, n: int) -> int:
            self.began.append(n)
            self.running.add(n)
            self.most = max(self.most, len(self.running))
            try:
                await self._gate(n).wait()
            finally:
                self.running.discard(n)
            if n < 0:
                raise Fail(f"no {-n}", category="plumbing", retryable=False)
            return n * n

        self.guest = guest

    def _gate(self, n: int) -> asyncio.Event:
        return self.gates.setdefault(n, asyncio.Event())

    def let_go(self, *numbers: int) -> None:
        for n in numbers:
            self._gate(n).set()

    async def inside(self, *numbers: int) -> None:
        """These run, and nobody else."""
        await eventually(lambda: self.running == set(numbers))


async def test_the_next_begins_when_one_has_ended(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    crowd = Crowd(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather(crowd.guest.many(range(5)), concurrency=2)

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        await crowd.inside(0, 1)
        await eventually(lambda: _is(client, handle.execution_id, PublicState.WAITING_CHILDREN))
        assert await states(db) == {"parent waiting_children": 1, "guest active": 2}
        crowd.let_go(1)
        await crowd.inside(0, 2)
        crowd.let_go(2)
        await crowd.inside(0, 3)
        crowd.let_go(0, 3, 4)
        assert await handle.result(timeout=20) == [0, 1, 4, 9, 16]

    assert crowd.most == 2
    assert sorted(crowd.began) == [0, 1, 2, 3, 4]
    assert len(await handle.attempts()) == 1
    assert await told_twice(db) == 0
    assert await broken_invariants(db) == {}
    flow = await client.engine.describe_flow(parent_flow_id(handle.execution_id))
    assert flow is not None
    assert (flow.derived_state, flow.members.total, flow.edge_count) == ("completed", 6, 5)


async def _is(client: Client, execution_id: ExecutionId, state: PublicState) -> bool:
    return await client.handle(execution_id).state() is state


@pytest.mark.parametrize("concurrency", [1, 3, 50])
async def test_the_results_come_in_the_order_of_the_calls_from_one_slot(
    client: Client, ff_dsn: str, db: Connection, concurrency: int
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[list[int]]:
        first = await ctx.gather(site.square.many(range(7)), concurrency=concurrency)
        return [first, await ctx.gather(site.square.many(first[:2]), concurrency=concurrency)]

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn, concurrency=1):
        assert await handle.result(timeout=20) == [[0, 1, 4, 9, 16, 25, 36], [0, 1]]

    assert await count(db) == 10
    assert await told_twice(db) == 0


async def test_a_gather_of_nothing_is_nothing_and_a_limit_is_a_positive_number(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, refused = App(), []
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[Any]:
        wrong: list[Any] = [0, -1, 1.5, True, "2"]
        for concurrency in wrong:
            with pytest.raises(ValidationError, match="concurrency") as error:
                await ctx.gather(site.square.many([1]), concurrency=concurrency)
            assert repr(concurrency) in str(error.value)
            refused.append(error.value.code)
        nothing: list[Any] = await ctx.gather([], concurrency=3)
        return [nothing, await ctx.gather([], concurrency=3, return_exceptions=True)]

    handle = await client.submit(parent.call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=5) == [[], []]
    assert refused == ["invalid_input"] * 5
    assert await count(db) == 1


async def test_a_plain_function_has_the_limit_too(client: Client, ff_dsn: str) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    def parent(ctx: Ctx) -> list[int]:
        return ctx.sync.gather(site.square.many(range(5)), concurrency=2)

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn, concurrency=4):
        assert await handle.result(timeout=20) == [0, 1, 4, 9, 16]

    assert site.most <= 2


# Children that fail.


async def test_the_first_that_fails_is_raised_at_once_and_no_other_is_started(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, caught = App(), []
    crowd, site = Crowd(app), Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> str:
        try:
            await ctx.gather(crowd.guest.many([1, -2, -3, 4, 5]), concurrency=3)
        except ChildFailed as error:
            caught.append((error.execution_id, error.category, error.reason))
        [one] = await ctx.gather([site.square.call(7)])
        return f"in the end {one}"

    handle = await client.submit(parent.call())
    second = child_id(handle.execution_id, 0, 2, kind="guest")
    async with app.worker(dsn=ff_dsn, drain=0.5):
        await crowd.inside(1, -2, -3)
        crowd.let_go(-3)
        await eventually(lambda: caught)
        crowd.let_go(-2)  # the one that ended first stays the one that is told
        assert await handle.result(timeout=20) == "in the end 49"

    assert set(caught) == {(second, "plumbing", "no 3")}
    assert sorted(crowd.began) == [-3, -2, 1]
    assert await count(db) == 1 + 3 + 1


async def test_with_return_exceptions_failures_make_room_as_well(
    client: Client, ff_dsn: str
) -> None:
    app, seen = App(), []
    crowd = Crowd(app)
    crowd.let_go(-1, 2, -3, 4, -5)

    @app.task("parent")
    async def parent(ctx: Ctx) -> None:
        calls = crowd.guest.many([-1, 2, -3, 4, -5])
        seen.append(await ctx.gather(calls, concurrency=2, return_exceptions=True))

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        await handle.result(timeout=20)

    [ends] = seen
    assert [end.reason if isinstance(end, ChildFailed) else end for end in ends] == [
        "no 1",
        4,
        "no 3",
        16,
        "no 5",
    ]
    assert crowd.most <= 2


# Crash, cancel, replay.


async def test_another_worker_goes_on_in_the_middle(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    crowd = Crowd(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather(crowd.guest.many(range(5)), concurrency=2)

    crowd.let_go(0)
    handle = await client.submit(parent.call())
    async with (
        Proxy.to(ff_dsn) as proxy,
        app.worker(dsn=proxy.dsn, lease_ttl=1, concurrency=4, drain=0),
    ):
        await crowd.inside(1, 2)
        proxy.cut()
        async with app.worker(dsn=ff_dsn, lease_ttl=5):
            await eventually(lambda: crowd.began.count(1) == crowd.began.count(2) == 2)
            crowd.let_go(1, 2, 3, 4)
            assert await handle.result(timeout=20) == [0, 1, 4, 9, 16]
        proxy.mend()

    assert crowd.began.count(3) == crowd.began.count(4) == 1
    assert await states(db) == {"parent completed": 1, "guest completed": 5}
    assert await told_twice(db) == 0


@pytest.mark.parametrize("lost", ["edge_group", "attempt"], ids=["spawn", "wait"])
async def test_an_answer_that_is_lost_costs_nothing_but_time(
    client: Client, ff_dsn: str, db: Connection, lost: str
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather(site.square.many(range(5)), concurrency=2)

    async def written() -> bool:
        return await db.fetchval(f"SELECT EXISTS (SELECT FROM ff.{lost})")

    async with Proxy.to(ff_dsn) as proxy:
        proxy.lose_answer(written)
        handle = await client.submit(parent.call())
        async with app.worker(dsn=proxy.dsn, lease_ttl=5, concurrency=4):
            assert await handle.result(timeout=30) == [0, 1, 4, 9, 16]

    assert site.most <= 2
    assert await states(db) == {"parent completed": 1, "square completed": 5}
    assert await told_twice(db) == 0


async def test_a_retry_of_the_parent_finds_what_is_done(client: Client, ff_dsn: str) -> None:
    app = App()
    site = Site(app)

    @app.task("parent", retry=Retry(max_retries=2, initial=0))
    async def parent(ctx: Ctx) -> list[int]:
        squares = await ctx.gather(site.square.many(range(4)), concurrency=3)
        if ctx.attempt_index == 0:
            raise RuntimeError("after all that work")
        return squares

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == [0, 1, 4, 9]

    assert sorted(site.ran) == [0, 1, 2, 3]


async def test_a_parent_that_is_cancelled_takes_its_children_along_and_a_replay_goes_on(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    crowd = Crowd(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather(crowd.guest.many(range(5)), concurrency=2)

    async def stand(wanted: dict[str, int]) -> bool:
        return await states(db) == wanted

    crowd.let_go(0)
    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn, lease_ttl=1.5):
        running = {"parent waiting_children": 1, "guest active": 2, "guest completed": 1}
        await eventually(lambda: stand(running))
        await handle.cancel("changed my mind")
        with pytest.raises(ExecutionCancelled):
            await handle.result(timeout=20)
        ended = {"parent cancelled": 1, "guest cancelled": 2, "guest completed": 1}
        await eventually(lambda: stand(ended))
        await crowd.inside()
        await handle.replay()
        await eventually(lambda: stand(running))
        crowd.let_go(1, 2, 3, 4)
        assert await handle.result(timeout=20) == [0, 1, 4, 9, 16]

    assert crowd.most == 2
    assert crowd.began.count(0) == 1
    reason = await given.row(db, child_id(handle.execution_id, 0, 1, kind="guest"))
    assert reason["public_state"] == "completed"


async def test_another_call_at_the_same_place_is_told(client: Client, ff_dsn: str) -> None:
    app, runs = App(), []
    site = Site(app)

    @app.task("parent", on_divergence="fail")
    async def parent(ctx: Ctx) -> None:
        runs.append(1)
        calls = [site.square.call(1), site.square.call(2)]
        if len(runs) > 1:
            calls[0] = site.broken.call()
        with pytest.raises(NonDeterministicReplay) if len(runs) > 1 else contextlib.nullcontext():
            await ctx.gather(calls, concurrency=1)
        raise Fail("swallowed", retryable=False)

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        with pytest.raises(ExecutionFailed, match="the handler made other calls than before"):
            await handle.result(timeout=20)


async def test_a_limit_may_change_while_the_parent_waits(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, limits = App(), [2, None, 3, None]
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        limit = limits.pop(0) if limits else 3
        return await ctx.gather(site.square.many(range(6)), concurrency=limit)

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == [0, 1, 4, 9, 16, 25]

    assert sorted(site.ran) == list(range(6))
    assert await told_twice(db) == 0
