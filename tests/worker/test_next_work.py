"""A worker that found nothing waits for a notification or its next poll, and for no longer."""

import asyncio

import pytest

from flowfabric import Client
from flowfabric.client.open_engine import on_database
from flowfabric.db.waiter import Waiter
from flowfabric.worker.next_work import NextWork
from tests import given
from tests.worker.facts import eventually
from tests.worker.proxy import Proxy

pytestmark = pytest.mark.direct("waits on a pool")


async def test_a_worker_that_is_stopped_does_not_wait_for_a_silent_connection(ff_dsn: str) -> None:
    stopping = asyncio.Event()

    async with Proxy.to(ff_dsn) as proxy, await Client.connect(proxy.dsn) as client:
        engine = on_database(client.engine)
        waiter = Waiter(engine.pool, engine.listener, ["lane:default"], name="w", poll=3)
        proxy.silence()
        waiting = asyncio.create_task(
            NextWork(engine, waiter, stopping).wait(given.WORKER)  # it asks what was passed over
        )
        await eventually(lambda: proxy.held_up > 0)
        stopping.set()
        try:
            await asyncio.wait((waiting,), timeout=5)
            assert waiting.done()
        finally:
            proxy.mend()
            await waiting
            await waiter.close()
