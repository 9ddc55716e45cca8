"""While the database refuses connections, few are tried, however many callers want one."""

import asyncio
import time

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, execute
from flowfabric.errors import TransportError
from tests.worker.facts import eventually
from tests.worker.proxy import Proxy

SIZE, CALLERS = 4, 64


async def test_a_pool_tries_seldom_while_the_database_is_away_and_at_once_when_it_is_back(
    ff_dsn: str, db: Connection
) -> None:
    answered = 0

    async def caller(pool: Pool) -> None:
        nonlocal answered
        while True:
            try:
                async with pool.connection() as conn:
                    await execute(conn, "SELECT 1")
                    answered += 1
                    return
            except TransportError:
                await asyncio.sleep(0.01)

    async with Proxy.to(ff_dsn) as proxy:
        pool = await Pool.open(DatabaseConfig(dsn=proxy.dsn, pool_size=SIZE))
        proxy.cut()
        callers = [asyncio.create_task(caller(pool)) for _ in range(CALLERS)]
        began = time.monotonic()
        await eventually(lambda: proxy.held_up >= SIZE + 4)
        took, tried = time.monotonic() - began, proxy.held_up
        assert answered == 0
        proxy.mend()
        await asyncio.wait_for(asyncio.gather(*callers), 10)
        await pool.close()

    assert tried <= 2 * SIZE * max(1.0, took)
    assert answered == CALLERS


async def test_a_caller_that_is_cancelled_in_its_trial_leaves_it_to_another(ff_dsn: str) -> None:
    async with Proxy.to(ff_dsn) as proxy:
        pool = await Pool.open(DatabaseConfig(dsn=proxy.dsn, pool_size=SIZE))
        proxy.cut()
        for _ in range(4):
            with pytest.raises(TransportError):
                async with pool.connection() as conn:
                    await execute(conn, "SELECT 1")

        async def asked() -> None:
            async with pool.connection() as conn:
                await execute(conn, "SELECT 1")

        first, second = asyncio.create_task(asked()), asyncio.create_task(asked())
        await asyncio.sleep(0)
        proxy.mend()
        first.cancel()
        await asyncio.wait_for(second, 10)
        await pool.close()
