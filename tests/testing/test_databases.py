"""A database is lent to one test after the other, as new each time."""

import asyncpg
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.testing import Clock, TestServer
from flowfabric.testing.empty_database import MANY
from tests import given

SCHEMA_CHANGES = {
    "a table": "CREATE TABLE public.left_over ()",
    "a dropped column": "ALTER TABLE ff.exec_core DROP COLUMN tags CASCADE",
    "a default": "ALTER TABLE ff.exec_core ALTER COLUMN priority SET DEFAULT 7",
    "a function": "CREATE FUNCTION public.left_over() RETURNS int LANGUAGE sql RETURN 1",
    "a privilege": "GRANT SELECT ON ff.exec_core TO PUBLIC",
    "a truncated table": "TRUNCATE ff.waiter",
    "a migration undone": "DELETE FROM ff.migration_annotation",
    "a dropped schema": "DROP SCHEMA ff CASCADE",
}


async def connected(dsn: str) -> Connection:
    return await connect(DatabaseConfig(dsn=dsn), role="tests")


async def lent_and_changed(server: TestServer, change: str) -> tuple[str, str]:
    """The database that a test changed, and the one that the next test gets."""
    lent = await server.lend()
    conn = await connected(lent)
    await conn.execute(change)
    await conn.close()
    await server.take_back(lent)
    then = await server.lend()
    await server.take_back(then)
    return lent, then


async def test_the_next_test_gets_the_same_database_without_a_row_and_on_real_time(
    ff_server: TestServer,
) -> None:
    lent = await ff_server.lend()
    conn = await connected(lent)
    await given.created(conn)
    clock = await Clock.install(conn)
    await clock.advance(86_400)
    await conn.close()
    await ff_server.take_back(lent)

    again = await ff_server.lend()
    conn = await connected(again)
    behind = await conn.fetchval(
        "SELECT extract(epoch FROM clock_timestamp()) * 1000 - ff.now_ms()"
    )
    rows = await conn.fetchval("SELECT count(*) FROM ff.exec_core")
    await conn.close()
    await ff_server.take_back(again)

    assert again == lent
    assert (rows, abs(behind) < 60_000) == (0, True)


@pytest.mark.parametrize("change", SCHEMA_CHANGES.values(), ids=SCHEMA_CHANGES)
async def test_no_test_gets_a_database_whose_schema_another_one_changed(
    ff_server: TestServer, change: str
) -> None:
    changed, then = await lent_and_changed(ff_server, change)

    assert then != changed


async def test_a_setting_of_the_database_does_not_reach_the_next_test(
    ff_server: TestServer,
) -> None:
    setting = (
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 777', current_database());"
        " END $$"
    )

    changed, then = await lent_and_changed(ff_server, setting)

    assert then != changed


@pytest.mark.session("the connection that is ended is the test's own")
async def test_a_connection_that_a_test_left_open_is_ended(ff_server: TestServer) -> None:
    lent = await ff_server.lend()
    left_open = await connected(lent)
    await left_open.execute("BEGIN")
    await given.created(left_open)
    await ff_server.take_back(lent)

    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await left_open.fetchval("SELECT 1")
    left_open.terminate()


async def test_a_database_that_was_lent_often_is_replaced(
    ff_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowfabric.testing.databases._LOANS", 0)

    lent, then = await lent_and_changed(ff_server, "SELECT 1")

    assert then != lent


async def test_a_database_that_had_many_rows_is_replaced(ff_server: TestServer) -> None:
    many = (
        "INSERT INTO ff.lane_registry (lane_id, registered_at_ms, registered_by)"
        f" SELECT n, 0, 'x' FROM generate_series(1, {MANY}) AS n"
    )

    lent, then = await lent_and_changed(ff_server, many)

    assert then != lent
