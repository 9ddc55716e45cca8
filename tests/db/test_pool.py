"""Connections: how many, with which limits, and what happens to broken ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import Pool, connect
from flowfabric.db.rows import Connection, fetch_one
from flowfabric.db.transaction import repeated, run
from flowfabric.errors import FlowFabricError, TransportError
from tests.all_cases import all_cases
from tests.db.facts import disconnected, until
from tests.worker.facts import eventually

pytestmark = pytest.mark.session("counts sessions and looks at their settings")

Opened = Callable[[DatabaseConfig], Awaitable[None]]
SECRET = "s3cr3t-marker"
BACKEND = "SELECT pg_backend_pid() AS pid"
COUNT = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE application_name = 'flowfabric counted' AND datname = current_database()"
)


class Backend(msgspec.Struct, frozen=True):
    pid: int


async def test_no_more_connections_than_the_pool_is_large(ff_dsn: str, db: Connection) -> None:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn, pool_size=2), role="counted")
    pids: set[int] = set()
    holding: list[int] = [0, 0]

    async def work() -> None:
        async with pool.connection() as conn:
            holding[0] += 1
            holding[1] = max(holding)
            pids.add(await conn.fetchval("SELECT pg_backend_pid()"))
            assert await db_count() <= 2
            await eventually(lambda: holding[1] == 2)  # the second connection takes a while to open
            holding[0] -= 1

    lock = asyncio.Lock()

    async def db_count() -> int:
        async with lock:
            return await db.fetchval(COUNT)

    await asyncio.gather(*[work() for _ in range(16)])

    assert holding == [0, 2]
    assert len(pids) == 2
    await pool.close()
    await until(lambda: db.fetchval(f"SELECT ({COUNT}) = 0"))


async def test_a_pool_opens_with_one_connection(ff_dsn: str, db: Connection) -> None:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn, pool_size=8), role="counted")

    assert await db.fetchval(COUNT) == 1
    await pool.close()


async def test_a_caller_that_stops_waiting_leaves_nothing_behind(ff_dsn: str) -> None:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn, pool_size=1), role="tests")

    async def want() -> int:
        async with pool.connection() as conn:
            return await conn.fetchval("SELECT 1")

    async with pool.connection():
        impatient, patient = asyncio.create_task(want()), asyncio.create_task(want())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(impatient, 0.01)
        assert not patient.done()

    assert await patient == 1
    await pool.close()


async def test_every_connection_has_a_name_and_limits(ff_dsn: str) -> None:
    config = DatabaseConfig(dsn=ff_dsn, statement_timeout=7, lock_timeout=3)
    settings = (
        "SELECT current_setting('application_name'), current_setting('statement_timeout'),"
        " current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')"
    )
    pool, alone = await Pool.open(config, role="worker"), await connect(config, role="renewer")

    async with pool.connection() as conn:
        assert tuple(await conn.fetchrow(settings) or ()) == (
            "flowfabric worker",
            "7s",
            "3s",
            "10s",
        )
    assert tuple(await alone.fetchrow(settings) or ()) == ("flowfabric renewer", "7s", "3s", "10s")

    await alone.close()
    await pool.close()


async def test_the_search_path_is_fixed_but_for_connections_that_run_statements_of_users(
    ff_dsn: str,
) -> None:
    config = DatabaseConfig(dsn=ff_dsn, pooler=False)
    ours, theirs = [
        await Pool.open(config, role="x", for_handlers=users) for users in (False, True)
    ]
    async with ours.connection() as conn, theirs.connection() as handlers:
        assert await conn.fetchval("SHOW search_path") == "pg_catalog, pg_temp"
        assert await handlers.fetchval("SHOW search_path") == '"$user", public'
    await ours.close()
    await theirs.close()


async def test_behind_a_pooler_there_are_no_session_settings_and_no_prepared_statements(
    ff_dsn: str,
) -> None:
    def pool(*, pooler: bool) -> DatabaseConfig:
        return DatabaseConfig(dsn=ff_dsn, pooler=pooler, lock_timeout=3)

    behind, direct = (
        await connect(pool(pooler=True), role="x"),
        await connect(pool(pooler=False), role="x"),
    )
    for conn in (behind, direct):
        for number in range(3):
            assert await conn.fetchval("SELECT $1::integer", number) == number
    prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%::integer%'"

    assert await behind.fetchval(prepared) == 0
    assert await direct.fetchval(prepared) >= 1
    assert await behind.fetchval("SHOW lock_timeout") == "0"
    assert await behind.fetchval("SHOW application_name") == ""
    await behind.close()
    await direct.close()


async def test_an_idle_connection_that_was_cut_is_replaced(ff_dsn: str, db: Connection) -> None:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn, pool_size=1), role="tests")

    async def backend() -> Backend:
        """Who answers; asked again where the cut was not noticed yet."""
        return await repeated(
            lambda: run(pool, "look", lambda conn: fetch_one(conn, BACKEND, Backend))
        )

    old = await backend()
    await disconnected(db, old.pid)

    assert (await backend()).pid != old.pid
    await pool.close()


async def test_an_open_transaction_does_not_reach_the_next_caller(
    ff_dsn: str, event_loop_errors: list[str]
) -> None:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn, pool_size=1), role="tests")
    async with pool.connection() as conn:
        await conn.execute("INSERT INTO ff.lane_registry VALUES ('kept', 0, 'test')")
        await conn.transaction().start()
        await conn.execute("INSERT INTO ff.lane_registry VALUES ('lost', 0, 'test')")
    async with pool.connection() as conn:
        await conn.execute("BEGIN; INSERT INTO ff.lane_registry VALUES ('lost', 0, 'test')")

    async with pool.connection() as conn:
        assert not conn.is_in_transaction()
        assert [row["lane_id"] for row in await conn.fetch("SELECT * FROM ff.lane_registry")] == [
            "kept"
        ]

    await pool.close()
    assert all("with an active transaction" in said for said in event_loop_errors)
    event_loop_errors.clear()


async def test_a_closed_pool_gives_no_connection(ff_dsn: str) -> None:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn), role="tests")
    await pool.close()

    with pytest.raises(FlowFabricError):
        async with pool.connection():
            pytest.fail("the pool is closed")


# Servers that cannot be reached.


async def open_pool(config: DatabaseConfig) -> None:
    pool = await Pool.open(config)
    await pool.close()


async def open_alone(config: DatabaseConfig) -> None:
    conn = await connect(config, role="tests")
    await conn.close()


@all_cases("opened", [open_pool, open_alone])
@all_cases(
    "dsn",
    [
        f"postgresql://user:{SECRET}@127.0.0.1:1/app",
        f"postgresql://user:{SECRET}@no-such-host.invalid/app",
        f"postgresql://user:{SECRET}@/app?host=/no/such/directory",
    ],
    ids=["refused", "unknown host", "no socket"],
)
async def test_a_server_that_is_not_there_is_transport_without_the_password(
    dsn: str, opened: Opened
) -> None:
    with pytest.raises(TransportError, match=r"cannot reach postgresql://user:\*\*\*@") as error:
        await opened(DatabaseConfig(dsn=dsn))

    assert SECRET not in str(error.value)
    assert error.value.retryable


@pytest.mark.parametrize("opened", [open_pool, open_alone])
async def test_a_server_that_never_answers_is_transport_after_the_timeout(opened: Opened) -> None:
    closing = asyncio.Event()

    async def silence(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closing.wait()
        writer.close()

    async with await asyncio.start_server(silence, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        dsn = f"postgresql://user:{SECRET}@127.0.0.1:{port}/app?sslmode=disable"
        with pytest.raises(TransportError, match="timed out") as error:
            await opened(DatabaseConfig(dsn=dsn, connect_timeout=0.05))
        closing.set()

    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://user:{SECRET}@host:port/app",
        f"postgresql://user:{SECRET}@127.0.0.1:99999/app",
        f"postgresql://user:{SECRET}@[::1/app",
        f"postgresql://user:{SECRET}@127.0.0.1:1/app?sslmode=bogus",
    ],
    ids=["port", "large port", "address", "sslmode"],
)
async def test_a_dsn_that_cannot_be_is_one_of_our_errors_and_not_retryable(dsn: str) -> None:
    with pytest.raises(FlowFabricError) as error:
        await open_pool(DatabaseConfig(dsn=dsn))

    assert SECRET not in str(error.value)
    assert not error.value.retryable
