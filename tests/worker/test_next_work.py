"""A worker that found nothing waits for a notification or its next poll, and for no longer."""

import asyncio

import pytest

from flowfabric import Client, Engine
from flowfabric.client.open_engine import on_database
from flowfabric.db.waiter import Waiter
from flowfabric.worker import passed_over
from flowfabric.worker.next_work import NextWork
from flowfabric.worker.passed_over import PassedOver
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


async def test_what_is_queued_after_an_empty_claim_is_claimed_at_its_notification(
    ff_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passed_over, "_FIRST_PAUSE", 60.0)
    waiter = Waiter(ff_engine.pool, ff_engine.listener, ["lane:default"], name="w", poll=60)
    next_work = NextWork(ff_engine, waiter, asyncio.Event())
    await ff_engine.create_execution([given.new()])

    next_work.wake()  # as its notification does
    async with asyncio.timeout(30):
        await next_work.wait(given.WORKER)

    await waiter.close()


async def test_pauses_grow_only_while_claims_find_nothing(ff_engine: Engine) -> None:
    await ff_engine.create_execution([given.new()])
    passed, pauses = PassedOver(), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    for found in (False, False, True, True):
        assert await passed.look(ff_engine, given.WORKER, sleep=sleep)
        if found:
            passed.found()

    assert pauses == [0.01, 0.02, 0.04, 0.01]
