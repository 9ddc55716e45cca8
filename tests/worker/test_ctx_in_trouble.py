"""Trouble with the database under a handler costs time, and is never a failure of the handler."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from flowfabric import App, Client, Ctx, ExecutionFailed, Retry
from flowfabric.db.rows import Connection
from flowfabric.states import PublicState
from tests import given
from tests.worker import crunching
from tests.worker.facts import eventually
from tests.worker.proxy import Proxy

pytestmark = pytest.mark.timeout(60)
ONCE = Retry(max_retries=0)


async def progress(ctx: Ctx) -> Any:
    await ctx.progress(50, "half way")


async def upstreams(ctx: Ctx) -> Any:
    return await ctx.upstreams()


async def spawn(ctx: Ctx) -> Any:
    await ctx.spawn(leaf.call(1), detached=True)


async def transaction(ctx: Ctx) -> Any:
    return await (await ctx.transaction()).fetchval("SELECT 7")


async def sync_progress(ctx: Ctx) -> Any:
    await asyncio.to_thread(ctx.sync.progress, 50)


CALLS = [progress, upstreams, spawn, transaction, sync_progress]
leaves = App()


@leaves.task("leaf")
async def leaf(ctx: Ctx, number: int) -> int:
    return number


@pytest.mark.direct("transactions of handlers need the database itself")
async def test_every_call_is_repeated_until_the_database_answers_again(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, starts = App(), []

    @app.task("first", retry=ONCE)
    async def first(ctx: Ctx) -> int:
        return 3

    @app.task("job", retry=ONCE)
    async def job(ctx: Ctx) -> str:
        starts.append(ctx.attempt_index)
        proxy.cut()
        calling = {call.__name__: asyncio.ensure_future(call(ctx)) for call in CALLS}
        await eventually(lambda: proxy.held_up >= 3)
        assert [name for name, each in calling.items() if each.done()] == []
        proxy.mend()
        await asyncio.gather(*calling.values())
        return "done"

    flow = app.flow("two")
    flow.add(job.call(), name="job").after(flow.add(first.call(), name="first"))
    async with Proxy.to(ff_dsn) as proxy, app.worker(dsn=proxy.dsn, lease_ttl=20):
        handle = await client.start(flow)
        assert (await handle.result(timeout=20))["job"] == "done"

    assert starts == [0]
    assert await db.fetchval("SELECT max(infra_release_count) FROM ff.execution") == 0


@pytest.fixture
async def limited(ff_dsn: str, db: Connection) -> AsyncGenerator[tuple[str, str]]:
    """A DSN of a role whose connections can be limited, and its name."""
    parts = urlsplit(ff_dsn)
    role = f"limited_{parts.path.strip('/')}"
    await db.execute(f"CREATE ROLE {role} LOGIN")
    for what in ("TABLES", "SEQUENCES", "FUNCTIONS"):
        await db.execute(f"GRANT ALL ON ALL {what} IN SCHEMA ff TO {role}")
    await db.execute(f"GRANT USAGE ON SCHEMA ff TO {role}")
    yield urlunsplit(parts._replace(netloc=f"{role}@")), role
    await db.execute(f"DROP OWNED BY {role}")
    await db.execute(f"DROP ROLE {role}")


@pytest.mark.session("a pooler shares the connections that the role may have")
@pytest.mark.direct("transactions of handlers need the database itself")
async def test_a_transaction_waits_while_there_are_too_many_connections(
    client: Client, db: Connection, limited: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    dsn, role = limited
    app, starts = App(), []

    @app.task("job", retry=ONCE)
    async def job(ctx: Ctx) -> int:
        starts.append(ctx.attempt_index)
        await db.execute(f"ALTER ROLE {role} CONNECTION LIMIT 1")
        tx = asyncio.ensure_future(ctx.transaction())
        await eventually(lambda: "too many connections" in caplog.text)
        await db.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1")
        return await (await tx).fetchval("SELECT 7")

    async with app.worker(dsn=dsn, lease_ttl=20, reconcile=False):
        handle = await client.submit(job.call())
        assert await handle.result(timeout=20) == 7

    assert starts == [0]


async def cut_handlers(db: Connection) -> None:
    await db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE '%handlers of%'"
    )


async def raw_error(ctx: Ctx, db: Connection) -> None:
    """The driver's own error flies out of the handler."""
    tx = await ctx.transaction()
    await cut_handlers(db)
    while True:
        await tx.execute("SELECT 1")


async def wrapped_error(ctx: Ctx, db: Connection) -> None:
    try:
        await raw_error(ctx, db)
    except asyncpg.PostgresError:
        raise RuntimeError("could not save")  # noqa: B904  as handlers do


async def grouped_error(ctx: Ctx, db: Connection) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(raw_error(ctx, db))


async def used_after_loss(ctx: Ctx, db: Connection) -> None:
    tx = await ctx.transaction()
    with contextlib.suppress(asyncpg.PostgresError):
        await raw_error(ctx, db)
    await tx.execute("SELECT 1")


async def deadlock(ctx: Ctx, db: Connection) -> None:
    tx = await ctx.transaction()
    await tx.execute("DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$")


async def own_client(ctx: Ctx, db: Connection) -> None:
    """A call of the user's own client finds no database."""
    await Client.connect("postgresql://nobody@127.0.0.1:9/none")


TROUBLES = [raw_error, wrapped_error, grouped_error, used_after_loss, deadlock, own_client]


@pytest.mark.direct("transactions of handlers need the database itself")
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
async def test_trouble_that_stops_a_handler_releases_it_and_uses_up_no_retry(
    client: Client,
    ff_dsn: str,
    db: Connection,
    trouble: Callable[[Ctx, Connection], Awaitable[None]],
) -> None:
    app, starts = App(), []

    @app.task("job", retry=ONCE, max_reclaims=1)
    async def job(ctx: Ctx) -> str:
        starts.append(ctx.attempt_index)
        if len(starts) == 1:
            await trouble(ctx, db)
        return "done"

    async with app.worker(dsn=ff_dsn):
        handle = await client.submit(job.call())
        assert await handle.result(timeout=20) == "done"

    snapshot = await handle.describe()
    assert starts == [0, 0]
    assert (snapshot.infra_release_count, snapshot.retry_count) == (1, 0)
    assert snapshot.lease_reclaim_count == 0


@pytest.mark.direct("transactions of handlers need the database itself")
async def test_what_the_statements_of_a_handler_do_wrong_is_its_failure(
    client: Client, ff_dsn: str
) -> None:
    app = App()

    @app.task("job", retry=ONCE)
    async def job(ctx: Ctx, statement: str) -> None:
        await (await ctx.transaction()).execute(statement)

    async with app.worker(dsn=ff_dsn):
        for statement in ("SELEC 1", "SELECT 1 / 0", "SELECT * FROM missing"):
            handle = await client.submit(job.call(statement))
            with pytest.raises(ExecutionFailed):
                await handle.result(timeout=20)
            assert (await handle.describe()).infra_release_count == 0


@pytest.mark.direct("transactions of handlers need the database itself")
async def test_trouble_that_does_not_end_is_bounded(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app = App()

    @app.task("job", retry=ONCE)
    async def job(ctx: Ctx) -> None:
        await deadlock(ctx, db)

    handle = await client.submit(job.call())
    await db.execute("UPDATE ff.exec_core SET infra_release_count = 20")
    async with app.worker(dsn=ff_dsn):
        with pytest.raises(ExecutionFailed, match="released 20 times because of database trouble"):
            await handle.result(timeout=20)

    assert await given.public_state(db, handle.execution_id) is PublicState.FAILED


async def test_a_lease_that_is_lost_in_the_trouble_ends_the_repeats(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    app, raised = App(), []

    async def cut() -> None:
        proxy.cut()

    @app.task("job", retry=ONCE)
    def job(ctx: Ctx) -> None:
        asyncio.run_coroutine_threadsafe(cut(), ctx._loop).result()
        try:
            ctx.sync.progress(50)
        except BaseException as error:
            raised.append(type(error).__name__)
            raise

    async with Proxy.to(ff_dsn) as proxy, app.worker(dsn=proxy.dsn, lease_ttl=1, drain=0):
        await client.submit(job.call())
        await eventually(lambda: raised, within=50)
        proxy.mend()

    assert raised == ["LeaseLost"]


async def test_a_task_in_a_child_process_asks_its_worker_for_the_upstreams(
    client: Client, ff_dsn: str
) -> None:
    flow = crunching.app.flow("two")
    first = flow.add(crunching.square.call(3), name="first")
    flow.add(crunching.collects.call(), name="second").after(first)

    async with crunching.app.worker(dsn=ff_dsn):
        handle = await client.start(flow)
        assert (await handle.result(timeout=20))["second"] == {"first": 9}


async def test_trouble_in_a_child_process_releases_the_attempt(
    client: Client, ff_dsn: str, tmp_path: Any
) -> None:
    async with crunching.app.worker(dsn=ff_dsn):
        handle = await client.submit(crunching.troubled.call(str(tmp_path / "started")))
        assert await handle.result(timeout=20) == "done"

    snapshot = await handle.describe()
    assert (snapshot.infra_release_count, snapshot.retry_count) == (1, 0)
