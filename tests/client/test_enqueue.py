"""Submitting on the caller's own connection: it happens if, and when, their transaction commits."""

import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import asyncpg
import psycopg
import psycopg.rows
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio as sqlalchemy_async

from flowfabric import App, Client, ConfigError, Ctx, NotFound, Retry
from flowfabric.db.rows import Connection
from flowfabric.errors import IdempotencyConflict, LaneNotAccepting
from flowfabric.states import PublicState
from tests import given
from tests.worker.facts import count, eventually, is_idle

pytestmark = [pytest.mark.timeout(30), pytest.mark.direct("conn= needs the database itself")]

app = App()


@app.task("double", retry=Retry(max_retries=2, initial=0))
async def double(ctx: Ctx, number: int) -> int:
    return 2 * number


class Abandoned(Exception):
    """The caller's transaction is rolled back."""


Open = Callable[[str], AbstractAsyncContextManager[Any]]


@contextlib.asynccontextmanager
async def psycopg_async(dsn: str) -> AsyncGenerator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        yield conn


@contextlib.asynccontextmanager
async def psycopg_dicts(dsn: str) -> AsyncGenerator[Any]:
    rows = psycopg.rows.dict_row
    async with await psycopg.AsyncConnection[Any].connect(dsn, row_factory=rows) as conn:
        yield conn


@contextlib.asynccontextmanager
async def psycopg_scalars(dsn: str) -> AsyncGenerator[Any]:
    rows = psycopg.rows.scalar_row
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=rows) as conn:
        yield conn


@contextlib.asynccontextmanager
async def psycopg_blocking(dsn: str) -> AsyncGenerator[Any]:
    with psycopg.connect(dsn) as conn:
        yield conn


@contextlib.asynccontextmanager
async def asyncpg_connection(dsn: str) -> AsyncGenerator[Any]:
    conn = await asyncpg.connect(dsn)
    try:
        async with conn.transaction():
            yield conn
    finally:
        await conn.close()


@contextlib.asynccontextmanager
async def asyncpg_of_a_pool(dsn: str) -> AsyncGenerator[Any]:
    async with (
        asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool,
        pool.acquire() as conn,
        conn.transaction(),
    ):
        yield conn


@contextlib.asynccontextmanager
async def asyncpg_with_json(dsn: str) -> AsyncGenerator[Any]:
    """As many applications set theirs up: JSON values instead of text."""
    async with asyncpg_connection(dsn) as conn:
        for kind in ("json", "jsonb"):
            await conn.set_type_codec(
                kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
            )
        yield conn


@contextlib.asynccontextmanager
async def sqlalchemy_blocking(dsn: str) -> AsyncGenerator[Any]:
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    try:
        with engine.begin() as conn:
            yield conn
    finally:
        engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_over_psycopg(dsn: str) -> AsyncGenerator[Any]:
    pytest.importorskip("greenlet")

    async def creator() -> Any:
        return await psycopg.AsyncConnection.connect(dsn)

    engine = sqlalchemy_async.create_async_engine(
        "postgresql+psycopg_async://", async_creator=creator
    )
    try:
        async with engine.begin() as conn:
            yield conn
    finally:
        await engine.dispose()


@contextlib.asynccontextmanager
async def sqlalchemy_over_asyncpg(dsn: str) -> AsyncGenerator[Any]:
    pytest.importorskip("greenlet")

    async def creator() -> Any:
        return await asyncpg.connect(dsn)

    engine = sqlalchemy_async.create_async_engine("postgresql+asyncpg://", async_creator=creator)
    try:
        async with engine.begin() as conn:
            yield conn
    finally:
        await engine.dispose()


WAYS: list[Open] = [
    psycopg_async,
    psycopg_dicts,
    psycopg_scalars,
    psycopg_blocking,
    asyncpg_connection,
    asyncpg_of_a_pool,
    asyncpg_with_json,
    sqlalchemy_blocking,
    sqlalchemy_over_psycopg,
    sqlalchemy_over_asyncpg,
]
every_way = pytest.mark.parametrize("opened", WAYS, ids=[way.__name__ for way in WAYS])


@every_way
async def test_a_commit_makes_it_happen(
    client: Client, ff_dsn: str, db: Connection, opened: Open
) -> None:
    async with opened(ff_dsn) as conn:
        handle = await client.submit(
            double.call(21), conn=conn, tags={"shop.tenant": "acme"}, delay=0
        )
        assert handle.created
        assert await count(db) == 0  # nobody else sees it yet

    await app.worker(dsn=ff_dsn).run_until_idle()
    assert await handle.result(timeout=10) == 42
    assert (await handle.describe()).tags == {"shop.tenant": "acme"}
    policy = await db.fetchval("SELECT policy #>> '{retry_policy,max_retries}' FROM ff.exec_body")
    assert policy == "2"


@every_way
async def test_a_rollback_leaves_nothing(
    client: Client, ff_dsn: str, db: Connection, opened: Open
) -> None:
    with contextlib.suppress(Abandoned):
        async with opened(ff_dsn) as conn:
            await client.submit(double.call(1), conn=conn, idempotency_key="k")
            await client.submit_many([double.call(2), double.call(3)], conn=conn)
            raise Abandoned

    assert await count(db) == 0
    assert await db.fetchval("SELECT count(*) FROM ff.exec_idempotency") == 0
    assert (await client.submit(double.call(1), idempotency_key="k")).created


@every_way
async def test_a_lane_that_takes_nothing_is_named(
    client: Client, ff_dsn: str, db: Connection, opened: Open
) -> None:
    await client.submit(double.call(1))
    await client.admin.drain_lane("default")

    with pytest.raises(LaneNotAccepting, match="ff lanes resume default") as raised:
        async with opened(ff_dsn) as conn:
            await client.submit(double.call(2), conn=conn)

    assert (raised.value.lane_id, raised.value.lane_state) == ("default", "draining")
    assert await count(db) == 1


@every_way
async def test_many_are_answered_in_order_and_keys_are_honoured(
    client: Client, ff_dsn: str, opened: Open
) -> None:
    first = await client.submit(double.call(1), idempotency_key="k")

    async with opened(ff_dsn) as conn:
        handles = await client.submit_many([double.call(n) for n in (5, 6, 7)], conn=conn)
        again = await client.submit(double.call(1), conn=conn, idempotency_key="k")
        with pytest.raises(IdempotencyConflict) as raised:
            await client.submit(double.call(9), conn=conn, idempotency_key="k")

    assert raised.value.differs == ("payload",)
    assert (again.created, again.execution_id) == (False, first.execution_id)
    await app.worker(dsn=ff_dsn).run_until_idle()
    assert [await handle.result(timeout=10) for handle in handles] == [10, 12, 14]


@pytest.mark.session("begins when a process is registered for notifications")
async def test_a_commit_wakes_an_idle_worker(client: Client, ff_dsn: str, db: Connection) -> None:
    async with app.worker(dsn=ff_dsn), asyncpg_connection_without_transaction(ff_dsn) as conn:
        await eventually(lambda: is_idle(db))
        async with conn.transaction():
            handle = await client.submit(double.call(1), conn=conn)
        assert await handle.result(timeout=1.5) == 2  # the worker polls every three seconds


@contextlib.asynccontextmanager
async def asyncpg_connection_without_transaction(dsn: str) -> AsyncGenerator[Any]:
    conn = await asyncpg.connect(dsn)
    try:
        yield conn
    finally:
        await conn.close()


async def test_it_stands_and_falls_with_the_callers_own_rows(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    await db.execute("CREATE TABLE public.orders (id int PRIMARY KEY)")
    try:
        for order, fails in ((1, False), (2, True)):
            with contextlib.suppress(Abandoned):
                async with await psycopg.AsyncConnection.connect(ff_dsn) as conn:
                    await conn.execute("INSERT INTO public.orders VALUES (%s)", [order])
                    await client.submit(double.call(order), conn=conn)
                    if fails:
                        raise Abandoned
        assert await db.fetch("SELECT id FROM public.orders") == [(1,)]
        assert await count(db, "waiting") == 1
    finally:
        await db.execute("DROP TABLE public.orders")


@pytest.mark.parametrize("connection", [object(), "dsn", 5], ids=["object", "str", "int"])
async def test_a_connection_of_another_kind_is_refused_by_name(
    client: Client, db: Connection, connection: Any
) -> None:
    with pytest.raises(ConfigError, match="psycopg 3") as refused:
        await client.submit(double.call(1), conn=connection)

    assert type(connection).__name__ in str(refused.value)
    assert await count(db) == 0


async def test_a_pool_is_no_connection_because_it_would_commit_at_once(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    async with asyncpg.create_pool(ff_dsn, min_size=1, max_size=1) as pool:
        with pytest.raises(ConfigError):
            await client.submit(double.call(1), conn=pool)

    assert await count(db) == 0


async def test_what_was_rolled_back_is_not_found_by_those_who_wait_for_it(
    client: Client, ff_dsn: str
) -> None:
    with contextlib.suppress(Abandoned):
        async with psycopg_async(ff_dsn) as conn:
            handle = await client.submit(double.call(1), conn=conn)
            raise Abandoned

    with pytest.raises(NotFound):
        await handle.result(timeout=1)


async def test_sql_alone_can_submit_what_python_runs(
    client: Client, ff_dsn: str, db: Connection
) -> None:
    written = await db.fetchval("SELECT ff.submit('double', '{\"number\": 4}')")
    await app.worker(dsn=ff_dsn).run_until_idle()

    handle = client.handle(written)
    assert await handle.result(timeout=10) == 8
    assert await given.public_state(db, handle.execution_id) is PublicState.COMPLETED
