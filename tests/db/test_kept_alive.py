"""A session with an open transaction is kept alive, and its user notices nothing of it."""

import asyncio
from collections.abc import AsyncGenerator

import asyncpg
import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.kept_alive import is_lost, keep_alive
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from tests.worker.facts import eventually

IDLE = 0.3


@pytest.fixture
async def kept(ff_dsn: str) -> AsyncGenerator[Connection]:
    """A connection whose transactions may be idle for `IDLE` seconds."""
    config = DatabaseConfig(dsn=ff_dsn, pool_size=1, idle_transaction_timeout=IDLE)
    pool = await Pool.open(config, role="kept alive", for_handlers=True)
    async with pool.connection() as conn:
        yield conn
    await pool.close()


async def keeping(conn: Connection) -> None:
    while True:
        await keep_alive(conn)
        await asyncio.sleep(0.02)


async def test_an_idle_transaction_lives_while_it_is_kept_alive(kept: Connection) -> None:
    task = asyncio.create_task(keeping(kept))
    async with kept.transaction():
        before = await kept.fetchval("SELECT pg_current_xact_id()::text")
        await asyncio.sleep(3 * IDLE)
        assert await kept.fetchval("SELECT pg_current_xact_id()::text") == before
    task.cancel()


@pytest.mark.session("needs the idle timeout of its session")
async def test_an_idle_transaction_that_is_not_kept_alive_is_ended(kept: Connection) -> None:
    await kept.execute("BEGIN")

    await eventually(lambda: is_lost(kept))
    await keep_alive(kept)
    with pytest.raises(asyncpg.InterfaceError):
        await kept.execute("SELECT 1")


async def test_statements_cursors_and_copies_never_meet_the_statement_that_keeps_alive(
    kept: Connection,
) -> None:
    async def without_pause() -> None:
        while True:
            await keep_alive(kept)
            await asyncio.sleep(0)

    task = asyncio.create_task(without_pause())
    async with kept.transaction():
        await kept.execute("CREATE TEMP TABLE t (n integer) ON COMMIT DROP")
        await kept.copy_records_to_table("t", records=[(n,) for n in range(300)])
        statement = await kept.prepare("SELECT n FROM t WHERE n < $1 ORDER BY n")
        for number in range(100):
            assert await kept.fetchval("SELECT $1::integer", number) == number
            assert len(await statement.fetch(number)) == number
        found = [record["n"] async for record in kept.cursor("SELECT n FROM t ORDER BY n")]
        async with kept.transaction():
            await kept.executemany("INSERT INTO t VALUES ($1)", [(n,) for n in range(10)])
    assert found == list(range(300))
    assert not task.done()
    task.cancel()


async def test_nothing_is_sent_while_an_operation_is_in_progress(kept: Connection) -> None:
    sleeping = asyncio.create_task(kept.execute("SELECT pg_sleep(0.1)"))
    while not sleeping.done():
        await keep_alive(kept)
        await asyncio.sleep(0.005)

    assert await sleeping == "SELECT 1"


async def test_a_transaction_that_failed_is_kept_alive_too(kept: Connection) -> None:
    await kept.execute("BEGIN")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await kept.execute("SELECT 1 / 0")
    await keep_alive(kept)
    await kept.execute("ROLLBACK")
    assert await kept.fetchval("SELECT 1") == 1
