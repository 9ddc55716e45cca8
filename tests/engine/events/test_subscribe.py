"""Subscriptions: who shares what, and when it ends."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_completions import subscribe_completions
from flowfabric.engine.events.subscribe_lease_history import subscribe_lease_history
from flowfabric.engine.events.subscribe_operator_events import subscribe_operator_events
from flowfabric.errors import Unavailable, ValidationError
from tests.engine.events.facts import claimed_many, completed, emitted, taken, true
from tests.worker.facts import eventually

WAITERS = "SELECT count(*) FROM ff.waiter WHERE waiter_id LIKE '%-reader-%'"


@pytest.mark.session("counts registrations for notifications")
async def test_two_subscribers_share_one_reader_and_see_the_same(hub: Hub, db: Connection) -> None:
    one, two = await subscribe_lease_history(hub), await subscribe_lease_history(hub)
    await claimed_many(db, 20)

    told = await asyncio.gather(taken(one, 20), taken(two, 20))

    assert told[0] == told[1]
    assert one._subscriber.reader is two._subscriber.reader
    assert await eventually(lambda: db.fetchval(WAITERS)) == 2  # the topics of one reader


async def test_nobody_reads_when_nobody_subscribes(hub: Hub, db: Connection) -> None:
    assert not hub.leases.is_reading

    one, two = await subscribe_lease_history(hub), await subscribe_lease_history(hub)
    await claimed_many(db, 1)
    await taken(one)
    assert hub.leases.is_reading
    assert not hub.completions.is_reading
    await one.aclose()
    assert hub.leases.is_reading
    await two.aclose()

    assert not hub.leases.is_reading
    assert await db.fetchval(WAITERS) == 0


async def test_a_reader_that_ended_is_followed_by_another(hub: Hub, db: Connection) -> None:
    first = await subscribe_completions(hub)
    await first.aclose()
    missed = await completed(db)

    second = await subscribe_completions(hub, first.cursor)

    assert [event.execution_id for event in await taken(second)] == [missed]


async def test_leaving_an_async_with_ends_the_subscription(hub: Hub, db: Connection) -> None:
    async with await subscribe_completions(hub) as ends:
        await completed(db)
        async for event in ends:
            assert event.cursor == ends.cursor
            break

    assert not hub.completions.is_reading
    assert [event async for event in ends] == []


async def test_a_subscription_that_was_forgotten_is_missed_by_nobody(
    hub: Hub, db: Connection
) -> None:
    async for _ in await _after_one_act(hub, db):
        break
    gc.collect()
    await db.execute("SELECT pg_notify('ff_wake', 'operator')")

    await true(lambda: not hub.operators.is_reading)


async def _after_one_act(hub: Hub, db: Connection) -> Any:
    acts = await subscribe_operator_events(hub)
    await emitted(db)
    return acts


async def test_closing_a_subscription_ends_a_wait_for_its_next_event(hub: Hub) -> None:
    acts = await subscribe_operator_events(hub)
    waiting = asyncio.create_task(_all(acts))
    await asyncio.sleep(0)

    await acts.aclose()
    await acts.aclose()

    async with asyncio.timeout(5):
        assert await waiting == []


async def test_closing_the_hub_ends_every_subscription_quietly(hub: Hub, db: Connection) -> None:
    subscriptions = (
        await subscribe_completions(hub),
        await subscribe_lease_history(hub),
        await subscribe_operator_events(hub),
    )
    waiting = [asyncio.create_task(_all(each)) for each in subscriptions]
    await asyncio.sleep(0)

    await hub.close()

    async with asyncio.timeout(5):
        assert await asyncio.gather(*waiting) == [[], [], []]
    assert await db.fetchval(WAITERS) == 0
    with pytest.raises(Unavailable):
        await subscribe_completions(hub)


async def test_a_subscription_that_had_not_begun_ends_with_the_hub(hub: Hub) -> None:
    acts = await subscribe_operator_events(hub)

    await hub.close()

    async with asyncio.timeout(5):
        assert await _all(acts) == []


async def _all(subscription: Any) -> list[Any]:
    return [event async for event in subscription]


async def test_a_wait_that_was_given_up_costs_no_event(hub: Hub, db: Connection) -> None:
    history = await subscribe_lease_history(hub)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(history)
    tasks = await claimed_many(db, 3)

    told = await taken(history, 3)

    assert {event.execution_id for event in told} == {task.lease.execution_id for task in tasks}


async def test_a_bad_cursor_is_refused_before_anything_is_read(hub: Hub) -> None:
    for subscribe in (
        subscribe_completions,
        subscribe_lease_history,
        subscribe_operator_events,
    ):
        with pytest.raises(ValidationError, match=r"^invalid_cursor: cursor '03'"):
            await subscribe(hub, b"\x03")

    assert not hub.completions.is_reading


async def test_instance_tags_cannot_be_subscribed_to(hub: Hub) -> None:
    with pytest.raises(Unavailable, match="subscribe_instance_tags"):
        await hub.subscribe_instance_tags()
