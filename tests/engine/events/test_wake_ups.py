"""Wake-ups are a hint: subscribers hear at once, and hear the same without them."""

from __future__ import annotations

import asyncio
import time

import pytest

from flowfabric.db.listen import CHANNEL
from flowfabric.db.rows import Connection
from flowfabric.db.waiter import register
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_completions import subscribe_completions
from flowfabric.engine.events.subscribe_lease_history import subscribe_lease_history
from flowfabric.engine.events.subscribe_operator_events import subscribe_operator_events
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.delay import DelayRequest, delay
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.engine.lifecycle.release import release
from flowfabric.testing import Clock
from tests import given
from tests.engine.events.conftest import opened
from tests.engine.events.facts import claimed_many, completed, emitted, taken
from tests.worker.facts import eventually

A_POLL = 2.0
"""Much less than the time between two looks of a reader that listens, at least four seconds."""


@pytest.mark.timing
@pytest.mark.session("begins when a process is registered for notifications")
async def test_events_arrive_long_before_the_next_poll(hub: Hub, db: Connection) -> None:
    ends = await subscribe_completions(hub)
    history = await subscribe_lease_history(hub)
    acts = await subscribe_operator_events(hub)
    await eventually(lambda: all_registered(db))

    began = time.monotonic()
    lease = await given.claimed(db)
    await taken(history)
    await release(db, [lease])
    await taken(history)
    [task] = await claim(db, given.OTHER, ttl=30)
    await complete(db, [Completion(task.lease)])
    await taken(history, 2)
    await taken(ends)
    await emitted(db)
    await taken(acts)

    assert time.monotonic() - began < A_POLL


async def all_registered(db: Connection) -> bool:
    """Are the three readers registered as waiting, the one of leases for two topics?"""
    return await db.fetchval("SELECT count(*) FROM ff.waiter") == 4


async def test_where_listening_is_off_everything_arrives_by_polling(
    ff_dsn: str, db: Connection
) -> None:
    async with opened(ff_dsn, listen=False) as hub:
        ends = await subscribe_completions(hub)
        history = await subscribe_lease_history(hub)
        acts = await subscribe_operator_events(hub)
        for _ in range(3):
            done = await completed(db)
            await emitted(db)

            assert [event.execution_id for event in await taken(ends)] == [done]
            assert [event.execution_id for event in await taken(history, 2)] == [done, done]
            assert len(await taken(acts)) == 1

        assert await db.fetchval("SELECT count(*) FROM ff.waiter") == 0


async def test_a_reader_holds_no_connection_while_it_waits(ff_dsn: str, db: Connection) -> None:
    async with opened(ff_dsn, pool_size=1) as hub:
        ends = await subscribe_completions(hub)
        history = await subscribe_lease_history(hub)
        acts = await subscribe_operator_events(hub)
        await completed(db)
        await emitted(db)

        told = await asyncio.gather(taken(ends), taken(history, 2), taken(acts))

        assert [len(events) for events in told] == [1, 2, 1]


async def test_whatever_touches_a_lease_rings_once_for_those_who_follow_leases(
    db: Connection, clock: Clock
) -> None:
    topics: list[object] = []
    await db.add_listener(CHANNEL, lambda _conn, _pid, _channel, topic: topics.append(topic))
    await register(db, "somebody", ["lease"])

    async def heard() -> list[object]:
        await db.fetchval("SELECT 1")  # what was notified before is here by then
        told = topics.copy()
        topics.clear()
        return told

    await claim(db, given.WORKER, ttl=30)
    assert await heard() == []
    tasks = await claimed_many(db, 20)
    assert await heard() == ["lease"]
    leases = [task.lease for task in tasks]
    await release(db, leases[:5])
    assert await heard() == ["lease"]
    await release(db, leases[:5])  # refused
    assert await heard() == []
    await delay(db, [DelayRequest(lease=lease, delay=60) for lease in leases[5:8]])
    assert await heard() == ["lease"]
    await clock.advance(61)
    await register(db, "somebody", ["lease"])
    await expire_leases(db, limit=100)
    assert await heard() == ["lease"]
    await create_execution(db, [given.new(policy=given.retrying(), priority=9)])
    [task] = await claim(db, given.WORKER, ttl=30)
    await fail(db, [Failure(lease=task.lease, reason="boom")])
    assert await heard() == ["lease", "lease"]
