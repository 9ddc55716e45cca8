"""Callers take turns at the connections of a pool."""

from __future__ import annotations

import asyncio

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import Pool
from flowfabric.db.turns import CALLER


async def test_a_caller_with_one_request_is_not_served_after_all_those_of_another(
    ff_dsn: str,
) -> None:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn, pool_size=1))
    served: list[str] = []

    async def request(caller: str) -> None:
        CALLER.set(caller)
        async with pool.connection():
            served.append(caller)

    async with pool.connection():
        requests = [asyncio.create_task(request("busy")) for _ in range(5)]
        await asyncio.sleep(0)
        requests.append(asyncio.create_task(request("other")))
        await asyncio.sleep(0)
    await asyncio.gather(*requests)
    await pool.close()

    assert served == ["busy", "other", "busy", "busy", "busy", "busy"]


async def test_a_caller_that_gives_up_leaves_its_turn_to_its_next_request(ff_dsn: str) -> None:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn, pool_size=1))
    served: list[int] = []

    async def request(number: int) -> None:
        CALLER.set("busy")
        async with pool.connection():
            served.append(number)

    async with pool.connection():
        requests = [asyncio.create_task(request(number)) for number in range(3)]
        await asyncio.sleep(0)
        requests[0].cancel()
    await asyncio.wait(requests)
    await pool.close()

    assert served == [1, 2]
