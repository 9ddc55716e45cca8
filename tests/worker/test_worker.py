"""The worker: what it claims, how it runs it, where it shows while it lives."""

import asyncio
import threading
import time
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from flowfabric import App, Client, Ctx, ResourceExhausted, Retry, Unavailable
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.states import PublicState
from flowfabric.testing import TestServer
from flowfabric.worker import idleness
from tests import given
from tests.worker.facts import count, eventually, told_twice

pytestmark = pytest.mark.timeout(30)


async def test_an_async_handler_runs_on_the_loop_and_a_plain_one_in_a_thread(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("async")
    async def on_loop(ctx: Ctx) -> str:
        return threading.current_thread().name

    @app.task("plain")
    def in_thread(ctx: Ctx) -> str:
        return threading.current_thread().name

    async with app.worker(dsn=ff_dsn):
        here = await (await client.submit(on_loop.call())).result(timeout=10)
        there = await (await client.submit(in_thread.call())).result(timeout=10)

    assert here == threading.current_thread().name
    assert there.startswith("flowfabric handler")


class Meter:
    """How many run at the same time, and the most that ever did."""

    def __init__(self) -> None:
        self.running = self.peak = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.running += 1
            self.peak = max(self.peak, self.running)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.running -= 1


@pytest.mark.parametrize("slots", [1, 3])
async def test_as_many_handlers_run_at_once_as_there_are_slots(
    client: Client, ff_dsn: str, db: Connection, slots: int
) -> None:
    app, meter, full = App(), Meter(), asyncio.Barrier(slots)

    @app.task("job")
    async def job(ctx: Ctx) -> None:
        with meter:
            await full.wait()

    await client.submit_many([job.call() for _ in range(4 * slots)])
    async with app.worker(dsn=ff_dsn, concurrency=slots):
        await eventually(lambda: count_is(db, "completed", 4 * slots))

    assert meter.peak == slots


async def test_a_free_slot_is_used_however_long_the_others_are_busy(
    client: Client, ff_dsn: str
) -> None:
    app, gate = App(), asyncio.Event()

    @app.task("long")
    async def long(ctx: Ctx) -> str:
        await gate.wait()
        return "long"

    @app.task("short")
    async def short(ctx: Ctx) -> str:
        return "short"

    async with app.worker(dsn=ff_dsn, concurrency=2):
        busy = await client.submit(long.call())
        for _ in range(5):
            assert await (await client.submit(short.call())).result(timeout=5) == "short"
        gate.set()
        assert await busy.result(timeout=5) == "long"


async def count_is(db: Connection, state: str, number: int) -> bool:
    return await count(db, state) == number


async def test_plain_handlers_share_a_bounded_number_of_threads(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, meter, pair = App(), Meter(), threading.Barrier(2)

    @app.task("job")
    def job(ctx: Ctx) -> None:
        with meter:
            pair.wait(10)

    await client.submit_many([job.call() for _ in range(10)])
    async with app.worker(dsn=ff_dsn, concurrency=8, sync_workers=2):
        await eventually(lambda: count_is(db, "completed", 10))

    assert meter.peak == 2


async def test_two_workers_share_the_work_and_nothing_is_done_twice(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, runs, both = App(), [], asyncio.Event()

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> None:
        runs.append(number)
        await both.wait()

    async def both_hold_some() -> bool:
        return await db.fetchval("SELECT count(DISTINCT worker_instance_id) = 2 FROM ff.execution")

    await client.submit_many(job.many(range(60)))
    async with app.worker(dsn=ff_dsn, concurrency=4), app.worker(dsn=ff_dsn, concurrency=4):
        await eventually(both_hold_some)
        both.set()
        await eventually(lambda: count_is(db, "completed", 60))

    assert sorted(runs) == list(range(60))
    assert await told_twice(db) == 0
    workers = await db.fetchval("SELECT count(DISTINCT worker_instance_id) FROM ff.attempt")
    assert workers == 2


async def test_what_no_handler_is_registered_for_is_left_to_others_unharmed(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    ours, theirs = App(), App()

    @ours.task("known")
    async def known(ctx: Ctx) -> str:
        return "done"

    @theirs.task("unknown")
    async def unknown(ctx: Ctx) -> None: ...

    foreign = await client.submit(unknown.call(), priority=100)
    own = await client.submit(known.call())
    await ours.worker(dsn=ff_dsn).run_until_idle()

    assert await own.result(timeout=10) == "done"
    stored = await given.row(db, foreign.execution_id)
    assert (stored["public_state"], stored["total_attempt_count"]) == ("waiting", 0)


async def test_a_worker_takes_only_its_lanes_its_namespace_and_what_it_is_capable_of(
    client: Client, ff_dsn: str
) -> None:
    app, elsewhere = App(), App(namespace="elsewhere")

    @app.task("job")
    async def job(ctx: Ctx) -> None: ...

    @app.task("heavy", requires={"gpu", "ssd"})
    async def heavy(ctx: Ctx) -> None: ...

    other_lane = await client.submit(job.call(), lane="slow")
    too_heavy = await client.submit(heavy.call())
    mine = await client.submit(job.call())
    elsewhere.task("job")(job.function)
    await elsewhere.worker(dsn=ff_dsn, lanes=["default", "slow"]).run_until_idle()
    assert await mine.state() is PublicState.WAITING

    await app.worker(dsn=ff_dsn, capabilities={"gpu"}).run_until_idle()
    assert await mine.state() is PublicState.COMPLETED
    assert await other_lane.state() is PublicState.WAITING
    assert await too_heavy.state() is PublicState.WAITING

    capable = app.worker(dsn=ff_dsn, lanes=["slow", "default"], capabilities={"ssd", "gpu", "x"})
    await capable.run_until_idle()
    assert await other_lane.state() is PublicState.COMPLETED
    assert await too_heavy.state() is PublicState.COMPLETED


async def test_the_most_urgent_runs_first_and_then_the_oldest(client: Client, ff_dsn: str) -> None:
    app, order = App(), []

    @app.task("job")
    async def job(ctx: Ctx, name: str) -> None:
        order.append(name)

    for name, priority in [("old", 0), ("urgent", 9), ("new", 0), ("soon", 5)]:
        await client.submit(job.call(name), priority=priority)
    await app.worker(dsn=ff_dsn, concurrency=1).run_until_idle()

    assert order == ["urgent", "soon", "old", "new"]


async def test_a_worker_is_in_the_registry_while_it_runs_and_not_after(
    ff_dsn: str, db: Connection
) -> None:
    app = App("shop")

    @app.task("job", lane="mail")
    async def job(ctx: Ctx) -> None: ...

    async def listed() -> list[Any]:
        return await db.fetch("SELECT * FROM ff.worker_registry")

    worker = app.worker(
        dsn=ff_dsn, worker_instance_id="shop-1", capabilities={"gpu"}, concurrency=7
    )
    async with worker:
        [row] = await eventually(listed)
        assert (row["worker_id"], row["worker_instance_id"]) == ("shop-worker", "shop-1")
        # The built-in kind is there too: `explain` asks the registry who serves a kind.
        assert (row["namespace"], row["lanes"]) == ("shop", ["mail"])
        assert row["kinds"] == ["ff.compensate", "job"]
        assert (row["capabilities"], row["concurrency"]) == (["gpu"], 7)

    assert await listed() == []


@pytest.mark.timing
async def test_running_until_idle_ends_at_once_where_there_is_nothing(ff_dsn: str) -> None:
    began = time.monotonic()

    await App().worker(dsn=ff_dsn).run_until_idle()

    assert time.monotonic() - began < 2.5


async def test_running_until_idle_includes_what_the_work_itself_makes(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()

    @app.task("countdown")
    async def countdown(ctx: Ctx, number: int) -> None:
        await asyncio.sleep(0.02)
        if number:
            await client.submit(countdown.call(number - 1))

    await client.submit(countdown.call(5))
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await count(db, "completed") == 6


async def test_running_until_idle_runs_what_a_running_handler_waits_for(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("asked")
    async def asked(ctx: Ctx) -> str:
        return "answer"

    @app.task("asking")
    async def asking(ctx: Ctx) -> str:
        return await (await client.submit(asked.call())).result(20)

    handle = await client.submit(asking.call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.result(1) == "answer"


async def test_running_until_idle_includes_retries_that_need_no_wait(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("flaky", retry=Retry(max_retries=3, initial=0))
    async def flaky(ctx: Ctx) -> int:
        if ctx.attempt_index < 3:
            raise RuntimeError("not yet")
        return ctx.attempt_index

    handle = await client.submit(flaky.call())
    await app.worker(dsn=ff_dsn).run_until_idle()

    assert await handle.state() is PublicState.COMPLETED
    assert await handle.result(timeout=5) == 3


@pytest.mark.parametrize("slots", [1, 2, 64])
async def test_running_until_idle_ends_whatever_the_number_of_slots(
    client: Client, ff_dsn: str, db: Connection, slots: int
) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> None:
        await asyncio.sleep(0.01)

    await client.submit_many([job.call() for _ in range(2 * min(slots, 8))])
    await asyncio.wait_for(app.worker(dsn=ff_dsn, concurrency=slots).run_until_idle(), 10)

    assert await count(db) == await count(db, "completed")


async def test_running_until_idle_waits_for_the_lease_of_a_dead_worker(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> str:
        return "here"

    handle = await client.submit(job.call())
    assert await claim(db, given.OTHER, ttl=0.5)

    await asyncio.wait_for(app.worker(dsn=ff_dsn, lease_ttl=2).run_until_idle(), 20)

    assert await handle.result(timeout=1) == "here"


async def test_running_until_idle_does_not_wait_for_what_others_do(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    """Whether their leases are renewed, or expire much later."""
    app, gate, started = App(), asyncio.Event(), []

    @app.task("job")
    async def job(ctx: Ctx, number: int) -> None:
        started.append(number)
        await gate.wait()

    await client.submit(job.call(1))
    await claim(db, given.OTHER, ttl=600)
    async with app.worker(dsn=ff_dsn, lease_ttl=2):
        handle = await client.submit(job.call(2))
        await eventually(lambda: started)
        await asyncio.wait_for(app.worker(dsn=ff_dsn, lease_ttl=2).run_until_idle(), 10)
        assert await handle.state() is PublicState.ACTIVE
        gate.set()

    assert started == [2]


async def test_running_until_idle_ends_where_no_sweep_expires_a_lease(
    client: Client, ff_dsn: str, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idleness, "SWEPT_WITHIN", 0.2)
    await given.claimed(db, ttl=0.01)
    app = App()

    @app.task("job")
    async def job(ctx: Ctx) -> None: ...

    worker = app.worker(dsn=ff_dsn, lease_ttl=1, reconcile=False)
    await asyncio.wait_for(worker.run_until_idle(), 20)

    assert await count(db, "active") == 1


async def test_a_worker_that_cannot_start_says_so(ff_server: TestServer) -> None:
    empty = await ff_server.create_empty()
    try:
        with pytest.raises(Unavailable, match="ff migrate"):
            await App().worker(dsn=empty).run(handle_signals=False)
    finally:
        await ff_server.drop(empty)


async def test_a_worker_used_as_a_block_that_cannot_start_says_so_before_the_block(
    ff_server: TestServer,
) -> None:
    empty = await ff_server.create_empty()
    try:
        with pytest.raises(Unavailable, match="ff migrate"):
            await App().worker(dsn=empty).__aenter__()
    finally:
        await ff_server.drop(empty)


@pytest.mark.session("a pooler shares the connections that the role may have")
@pytest.mark.direct("needs a connection to renew with")
async def test_a_worker_without_a_connection_to_renew_with_does_not_start(
    ff_dsn: str, db: Connection
) -> None:
    """Its leases would be lost later, while it claims more."""
    parts = urlsplit(ff_dsn)
    await db.execute("CREATE ROLE narrow LOGIN CONNECTION LIMIT 1 IN ROLE pg_write_all_data")
    try:
        await db.execute("GRANT pg_read_all_data TO narrow")
        await db.execute("GRANT USAGE ON SCHEMA ff TO narrow")
        dsn = urlunsplit(parts._replace(netloc=f"narrow@{parts.netloc.rpartition('@')[2]}"))
        with pytest.raises(ResourceExhausted, match="too many connections"):
            await App().worker(dsn=dsn).run(handle_signals=False)
        assert await db.fetchval("SELECT count(*) FROM ff.worker_registry") == 0
    finally:
        await db.execute("DROP OWNED BY narrow; DROP ROLE narrow")


@pytest.mark.session("counts connections at the server, which are those of the pooler")
@pytest.mark.direct("counts connections")
async def test_a_worker_uses_no_more_connections_than_its_pool_and_two(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, most = App(), 0

    @app.task("job", retry=Retry(max_retries=1, initial=0))
    async def job(ctx: Ctx, number: int) -> None:
        await ctx.progress(number % 100)
        if number % 3 == 0 and ctx.attempt_index == 0:
            raise RuntimeError("again")

    await client.submit_many(job.many(range(200)))
    async with app.worker(dsn=ff_dsn, concurrency=50):
        while not await count_is(db, "completed", 200):
            most = max(most, await connections(db))

    assert 3 <= most <= 8


async def connections(db: Connection) -> int:
    return await db.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'flowfabric %'"
        " AND application_name NOT IN"
        " ('flowfabric tests', 'flowfabric cleaner', 'flowfabric client')"
    )
