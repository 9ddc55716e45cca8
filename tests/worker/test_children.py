"""Children of a handler: gather, race, quorum, spawn."""

import asyncio
import logging
import threading
from typing import Any

import msgspec
import pytest

from flowfabric import (
    App,
    ChildFailed,
    Client,
    Ctx,
    ExecutionFailed,
    Fail,
    Handle,
    Retry,
    ValidationError,
)
from flowfabric.app.codec import MsgpackCodec
from flowfabric.db.rows import Connection
from flowfabric.ids import ExecutionId, child_id, parent_flow_id
from flowfabric.states import PublicState
from tests import given
from tests.worker.facts import count, eventually, told_twice

pytestmark = pytest.mark.timeout(60)


class Page(msgspec.Struct):
    url: str
    size: int


class Site:
    """An app with children of every temper, and what they did."""

    def __init__(self, app: App) -> None:
        self.ran: list[Any] = []
        self.running = self.most = 0
        self.gate = asyncio.Event()

        @app.task("square")
        async def square(ctx: Ctx, n: int) -> int:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.04 * (5 - n % 5))
            self.running -= 1
            self.ran.append(n)
            return n * n

        @app.task("stuck")
        async def stuck(ctx: Ctx) -> int:
            await self.gate.wait()
            return -1

        @app.task("broken")
        async def broken(ctx: Ctx, why: str = "out of order") -> int:
            raise Fail(why, category="plumbing", retryable=False)

        self.square, self.stuck, self.broken = square, stuck, broken


async def wait_of(db: Connection, parent: ExecutionId) -> str:
    """The state of the only wait of an execution."""
    return await db.fetchval(
        "SELECT group_state FROM ff.edge_group WHERE waiter_eid = $1 AND waits_as = 'children'",
        parent.uuid,
    )


# Gather.


async def test_the_results_come_in_the_order_of_the_calls(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, runs = App(), []
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx, n: int) -> list[int]:
        runs.append(ctx.fence.lease_epoch)
        return await ctx.gather(site.square.many(range(n)))

    handle = await client.submit(parent.call(5))
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == [0, 1, 4, 9, 16]

    assert runs == [1, 2]
    assert sorted(site.ran) == [0, 1, 2, 3, 4]
    [attempt] = await handle.attempts()
    assert attempt.outcome == "success"
    assert await given.lease_events(db, handle.execution_id) == [
        ("acquired", None),
        ("revoked", "waiting_children"),
        ("acquired", None),
        ("revoked", "completed"),
    ]
    flow = await client.engine.describe_flow(parent_flow_id(handle.execution_id))
    assert flow is not None
    assert (flow.flow_kind, flow.derived_state, flow.members.total) == ("children", "completed", 6)


async def test_children_are_named_by_their_place_and_tell_who_made_them(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App("shop")
    site = Site(app)

    @app.task("parent", lane="upstairs")
    async def parent(ctx: Ctx) -> None:
        await ctx.gather([site.square.call(1), site.square.call(2)])

    client.namespace = "shop"
    handle = await client.submit(parent.call(), tags={"a.b": "c"})
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.state() is PublicState.COMPLETED
    for index in range(2):
        child = child_id(handle.execution_id, 0, index, kind="square")
        snapshot = await client.describe(child)
        assert (snapshot.namespace, snapshot.lane_id, snapshot.tags) == ("shop", "default", {})
        assert snapshot.flow_id == parent_flow_id(handle.execution_id)
        creator = await db.fetchval(
            "SELECT creator_identity FROM ff.exec_body WHERE execution_id = $1", child.uuid
        )
        assert creator == f"parent {handle.execution_id}"


async def test_a_parent_gives_up_its_slot_while_it_waits(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx, n: int) -> int:
        return sum(await ctx.gather(site.square.many(range(n))))

    handles = await client.submit_many([parent.call(n) for n in (3, 4, 5)])
    async with app.worker(dsn=ff_dsn, concurrency=1):
        assert [await handle.result(timeout=20) for handle in handles] == [5, 14, 30]

    assert site.most == 1
    assert await told_twice(db) == 0


async def test_one_gather_after_the_other_and_one_within_the_other(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, runs = App(), []
    site = Site(app)

    @app.task("row")
    async def row(ctx: Ctx, n: int) -> list[int]:
        return await ctx.gather(site.square.many(range(n)))

    @app.task("table")
    async def table(ctx: Ctx) -> list[list[int]]:
        runs.append(1)
        first = await ctx.gather([row.call(2), row.call(3)])
        second = await ctx.gather([row.call(len(each)) for each in first])
        third = await ctx.gather(site.square.many(second[1]))
        return [*first, *second, third]

    handle = await client.submit(table.call())
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == [[0, 1], [0, 1, 4], [0, 1], [0, 1, 4], [0, 1, 16]]

    assert len(runs) == 4
    assert await count(db) == 1 + 4 + 10 + 3
    assert await db.fetchval("SELECT count(*) FROM ff.flow_core") == 1


async def test_results_have_the_type_that_the_child_returns(client: Client, ff_dsn: str) -> None:
    app, seen = App(), []

    @app.task("fetch", codec=MsgpackCodec())
    async def fetch(ctx: Ctx, url: str) -> Page:
        return Page(url, len(url))

    @app.task("raw")
    async def raw(ctx: Ctx, data: bytes) -> bytes:
        return data[::-1]

    @app.task("nothing")
    async def nothing(ctx: Ctx) -> None: ...

    @app.task("parent")
    async def parent(ctx: Ctx) -> None:
        pages = await ctx.gather(fetch.many(["a", "bc"]))
        mixed = await ctx.gather([raw.call(b"\x00\xff"), nothing.call()])
        seen.append((pages, mixed))

    handle = await client.submit(parent.call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    await handle.result(timeout=5)
    assert seen == [([Page("a", 1), Page("bc", 2)], [b"\xff\x00", None])]


async def test_a_gather_of_nothing_is_nothing(client: Client, ff_dsn: str, db: Connection) -> None:
    app = App()

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[Any]:
        return [await ctx.gather([]), await ctx.gather([], return_exceptions=True)]

    handle = await client.submit(parent.call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(timeout=5) == [[], []]
    assert await count(db) == 1


async def test_gathers_that_run_side_by_side_start_all_their_children(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[list[int]]:
        async with asyncio.TaskGroup() as group:
            some = group.create_task(ctx.gather([site.stuck.call(), site.stuck.call()]))
            other = group.create_task(ctx.gather([site.stuck.call()]))
        return [some.result(), other.result()]

    async def all_run() -> bool:
        return await count(db, "active") == 3

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        await eventually(all_run)
        site.gate.set()
        assert await handle.result(timeout=20) == [[-1, -1], [-1]]


# Children that fail.


async def test_a_failed_child_fails_its_parent_at_once_and_the_others_are_cancelled(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent", retry=Retry(max_retries=5, initial=30))
    async def parent(ctx: Ctx) -> None:
        await ctx.gather([site.square.call(1), site.broken.call(), site.stuck.call()])

    handle = await client.submit(parent.call())
    broken = child_id(handle.execution_id, 0, 1, kind="broken")
    stuck = child_id(handle.execution_id, 0, 2, kind="stuck")
    async with app.worker(dsn=ff_dsn, lease_ttl=1.5, drain=0.5):
        with pytest.raises(ExecutionFailed, match="out of order") as failed:
            await handle.result(timeout=20)
        await eventually(lambda: _is(client, stuck, PublicState.CANCELLED))

    assert failed.value.category == "handler_error"
    assert str(broken) in str(failed.value)
    assert "plumbing" in str(failed.value)
    assert len(await handle.attempts()) == 1
    stored = await given.row(db, stuck)
    assert (stored["cancellation_reason"], stored["cancelled_by"]) == ("parent_ended", "engine")


async def _is(client: Client, execution_id: ExecutionId, state: PublicState) -> bool:
    return await client.handle(execution_id).state() is state


async def test_a_handler_may_catch_what_befell_its_child(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, caught = App(), []
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> str:
        try:
            await ctx.gather([site.square.call(1), site.broken.call()])
        except ChildFailed as error:
            caught.append((error.execution_id, error.category, error.reason))
        [one] = await ctx.gather([site.square.call(7)])
        return f"in the end {one}"

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == "in the end 49"

    broken = child_id(handle.execution_id, 0, 1, kind="broken")
    assert set(caught) == {(broken, "plumbing", "out of order")}
    flow = await client.engine.describe_flow(parent_flow_id(handle.execution_id))
    assert flow is not None
    assert flow.derived_state == "completed"


async def test_with_return_exceptions_all_are_waited_for(client: Client, ff_dsn: str) -> None:
    app, seen = App(), []
    site = Site(app)

    @app.task("cancelled")
    async def cancelled(ctx: Ctx) -> int:
        await client.cancel(ctx.execution_id, "not wanted")
        await asyncio.sleep(30)
        return 0

    @app.task("late", timeout=0.1)
    async def late(ctx: Ctx) -> int:
        await asyncio.sleep(30)
        return 0

    @app.task("parent")
    async def parent(ctx: Ctx) -> None:
        seen.append(
            await ctx.gather(
                [site.broken.call(), site.square.call(3), cancelled.call(), late.call()],
                return_exceptions=True,
            )
        )

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn, lease_ttl=1.5):
        await handle.result(timeout=20)

    [[first, second, third, fourth]] = seen
    assert second == 9
    failures = [(each.category, each.reason) for each in (first, third, fourth)]
    assert failures == [
        ("plumbing", "out of order"),
        ("cancelled", "not wanted"),
        ("timeout", "attempt_timeout"),
    ]
    assert all(isinstance(each, ChildFailed) for each in (first, third, fourth))


async def test_a_child_has_retries_of_its_own(client: Client, ff_dsn: str) -> None:
    app, tries = App(), []

    @app.task("shaky", retry=Retry(max_retries=3, initial=0))
    async def shaky(ctx: Ctx) -> int:
        tries.append(ctx.attempt_index)
        if len(tries) < 3:
            raise RuntimeError("not yet")
        return 42

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        return await ctx.gather([shaky.call()])

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == [42]

    assert tries == [0, 1, 2]


# Race and quorum.


async def test_the_first_to_succeed_wins_and_the_others_are_cancelled(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        first = await ctx.race(site.stuck.call(), site.broken.call(), site.square.call(4))
        [again] = await ctx.gather([site.square.call(first)])
        return [first, again]

    handle = await client.submit(parent.call())
    stuck = child_id(handle.execution_id, 0, 0, kind="stuck")
    async with app.worker(dsn=ff_dsn, lease_ttl=1.5):
        assert await handle.result(timeout=20) == [16, 256]
        await eventually(lambda: _is(client, stuck, PublicState.CANCELLED))

    stored = await given.row(db, stuck)
    assert stored["cancellation_reason"] == "sibling_quorum_satisfied"


async def test_a_loser_of_a_race_is_no_matter_for_a_warning(
    client: Client, ff_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, stopped = App(), asyncio.Event()
    site = Site(app)

    @app.task("slow")
    async def slow(ctx: Ctx) -> int:
        try:
            await asyncio.sleep(600)
        finally:
            stopped.set()
        return 0

    @app.task("parent")
    async def parent(ctx: Ctx) -> int:
        return await ctx.race(slow.call(), site.square.call(4))

    with caplog.at_level(logging.INFO, "flowfabric.worker"):
        handle = await client.submit(parent.call())
        async with app.worker(dsn=ff_dsn, lease_ttl=1.5):
            assert await handle.result(timeout=20) == 16
            await stopped.wait()

    loser = child_id(handle.execution_id, 0, 0, kind="slow")
    said = {(each.levelname, each.getMessage()) for each in caplog.records}
    assert ("INFO", f"slow {loser} attempt 1 was cancelled while it ran") in said
    assert not [message for level, message in said if level == "WARNING"]


async def test_a_race_that_all_lose_fails(client: Client, ff_dsn: str) -> None:
    app, caught = App(), []
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> None:
        try:
            await ctx.race(site.broken.call("first"), site.broken.call("second"))
        except ChildFailed as error:
            caught.append(error.reason)

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        await handle.result(timeout=20)

    assert caught == ["first"]


@pytest.mark.parametrize("on_satisfied", ["cancel_remaining", "let_run"])
async def test_a_quorum_returns_the_first_in_the_order_of_the_calls(
    client: Client, ff_dsn: str, on_satisfied: Any
) -> None:
    app, seen = App(), []
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        calls = [site.square.call(3), site.stuck.call(), site.square.call(4), site.broken.call()]
        two = await ctx.quorum(2, calls, on_satisfied=on_satisfied)
        if on_satisfied == "let_run":  # else it may complete before it is cancelled
            site.gate.set()
        seen.append(two)
        await ctx.gather([site.square.call(1)])  # runs once more from the top
        return two

    handle = await client.submit(parent.call())
    stuck = child_id(handle.execution_id, 0, 1, kind="stuck")
    async with app.worker(dsn=ff_dsn, lease_ttl=1.5):
        assert await handle.result(timeout=20) == [9, 16]
        ended = {"cancel_remaining": PublicState.CANCELLED, "let_run": PublicState.COMPLETED}
        await eventually(lambda: _is(client, stuck, ended[on_satisfied]))

    assert seen == [[9, 16], [9, 16]]


async def test_a_quorum_that_cannot_be_reached_fails(client: Client, ff_dsn: str) -> None:
    app, caught = App(), []
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> None:
        try:
            await ctx.quorum(2, [site.stuck.call(), site.broken.call("a"), site.broken.call("b")])
        except ChildFailed as error:
            caught.append(error.reason)

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn, lease_ttl=1.5, drain=0.5):
        await handle.result(timeout=20)

    assert caught == ["a"]


async def test_a_call_that_can_never_be_satisfied_is_refused(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, refused = App(), []
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> None:
        for wrong in (
            ctx.race(),
            ctx.quorum(3, site.square.many(range(2))),
            ctx.quorum(0, site.square.many(range(2))),
            ctx.quorum(1, site.square.many(range(2)), on_satisfied="shrug"),  # type: ignore[arg-type]
        ):
            with pytest.raises(ValidationError) as error:
                await wrong
            refused.append(error.value.code)

    handle = await client.submit(parent.call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    await handle.result(timeout=5)
    assert refused == ["invalid_input"] * 4
    assert await count(db) == 1


# Spawn.


async def test_a_spawned_child_runs_beside_its_parent(client: Client, ff_dsn: str) -> None:
    app, met = App(), []
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> list[int]:
        one = await ctx.spawn(site.stuck.call())
        two = await ctx.spawn(site.square.call(6))
        met.append(one.execution_id)
        site.gate.set()
        return [await two.result(), await one.result(), await two.result()]

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == [36, -1, 36]

    assert set(met) == {child_id(handle.execution_id, 0, 0, kind="stuck")}


async def test_a_child_that_nobody_waits_for_outlives_a_parent_that_succeeds(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> str:
        return str((await ctx.spawn(site.stuck.call())).execution_id)

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        child = client.handle(await handle.result(timeout=20))
        await eventually(lambda: dispatched(db, handle.execution_id))
        await eventually(lambda: is_active(child))
        site.gate.set()
        assert await child.result(timeout=20) == -1


async def dispatched(db: Connection, execution_id: ExecutionId) -> bool:
    """Is everything done that follows from the end of this execution?"""
    return await db.fetchval(
        "SELECT bool_and(dispatched_at_ms IS NOT NULL) FROM ff.completion_event"
        " WHERE execution_id = $1",
        execution_id.uuid,
    )


async def is_active(handle: Handle[Any]) -> bool:
    return await handle.state() is PublicState.ACTIVE


async def test_a_spawned_child_that_fails_fails_whoever_waits_for_it(
    client: Client, ff_dsn: str
) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> str:
        child = await ctx.spawn(site.broken.call())
        with pytest.raises(ChildFailed) as failed:
            await child.result()
        return str(failed.value.reason)

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        assert await handle.result(timeout=20) == "out of order"


async def test_a_detached_child_is_on_its_own(client: Client, ff_dsn: str, db: Connection) -> None:
    app = App()
    site = Site(app)

    @app.task("parent")
    async def parent(ctx: Ctx) -> None:
        child = await ctx.spawn(site.square.call(2), detached=True)
        with pytest.raises(ValidationError, match="detached"):
            await child.result()
        raise Fail("enough", retryable=False)

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn):
        with pytest.raises(ExecutionFailed, match="enough"):
            await handle.result(timeout=20)
        child = client.handle(child_id(handle.execution_id, 0, 0, kind="square"))
        assert await child.result(timeout=20) == 4

    assert await db.fetchval("SELECT count(*) FROM ff.flow_core") == 0


# Threads and processes.


async def test_a_plain_function_has_children_too(client: Client, ff_dsn: str) -> None:
    app, threads = App(), set()
    site = Site(app)

    @app.task("parent")
    def parent(ctx: Ctx) -> list[Any]:
        threads.add(threading.current_thread() is threading.main_thread())
        child = ctx.sync.spawn(site.square.call(9))
        gathered = ctx.sync.gather(site.square.many(range(3)))
        first = ctx.sync.race(site.stuck.call(), site.square.call(2))
        both = ctx.sync.quorum(2, site.square.many([5, 6]))
        ended = ctx.sync.gather([site.broken.call()], return_exceptions=True)
        return [gathered, first, both, child.result(), [type(each).__name__ for each in ended]]

    handle = await client.submit(parent.call())
    async with app.worker(dsn=ff_dsn, concurrency=2, lease_ttl=1.5):
        assert await handle.result(timeout=20) == [[0, 1, 4], 4, [25, 36], 81, ["ChildFailed"]]

    assert threads == {False}
