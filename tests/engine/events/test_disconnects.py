"""A connection that is cut: subscribers are told or go on, and in either case lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.events.subscribe import Hub, Subscription
from flowfabric.engine.events.subscribe_completions import subscribe_completions
from flowfabric.engine.events.subscribe_lease_history import subscribe_lease_history
from flowfabric.engine.events.subscribe_operator_events import subscribe_operator_events
from flowfabric.errors import StreamDisconnected
from tests.db.facts import disconnected
from tests.engine.events.conftest import Cut, Provoke, opened
from tests.engine.events.facts import claimed_many, completed, emitted, taken

LISTENING = "SELECT pid FROM pg_stat_activity WHERE application_name = 'flowfabric listener'"


def notified(db: Connection, topic: str) -> Provoke:
    """The shared reader is woken."""
    return lambda: db.execute("SELECT pg_notify('ff_wake', $1)", topic)


async def ended_with(subscription: Subscription[Any]) -> bytes:
    """The subscription says once that it was cut, and is over; where to go on."""
    with pytest.raises(StreamDisconnected) as cut:
        await taken(subscription)
    assert cut.value.cursor == subscription.cursor
    with pytest.raises(StopAsyncIteration):
        await taken(subscription)
    return cut.value.cursor


async def test_a_lease_subscription_says_where_it_was_cut_and_ends(
    hub: Hub, db: Connection, cut: Cut
) -> None:
    one, two = await subscribe_lease_history(hub), await subscribe_lease_history(hub)
    await claimed_many(db, 1)
    [seen] = await taken(one)

    await cut("lease_event", notified(db, "lease"))
    [missed] = await claimed_many(db, 1)

    assert await ended_with(one) == seen.cursor
    again = await subscribe_lease_history(hub, seen.cursor)
    whole = await subscribe_lease_history(hub, await ended_with(two))
    [event] = await taken(again)
    assert event.execution_id == missed.lease.execution_id
    assert await taken(whole, 2) == [seen, event]


async def test_an_operator_subscription_says_where_it_was_cut_and_ends(
    hub: Hub, db: Connection, cut: Cut
) -> None:
    acts = await subscribe_operator_events(hub)

    await cut("operator_event", notified(db, "operator"))
    await emitted(db, "replayed")

    again = await subscribe_operator_events(hub, await ended_with(acts))
    assert [event.event_type for event in await taken(again)] == ["replayed"]


async def test_a_completion_subscription_goes_on_as_if_nothing_had_been(
    hub: Hub, db: Connection, cut: Cut, caplog: pytest.LogCaptureFixture
) -> None:
    ends = await subscribe_completions(hub)
    before = await completed(db)
    await taken(ends)

    for _ in range(2):
        await cut("completion_event", notified(db, "completion"))
    after = await completed(db)

    assert [event.execution_id for event in await taken(ends)] == [after]
    assert before != after
    assert "cannot read completion events, trying again" in caplog.text


async def test_a_cut_of_one_family_is_nothing_to_the_others(
    hub: Hub, db: Connection, cut: Cut
) -> None:
    history, acts = await subscribe_lease_history(hub), await subscribe_operator_events(hub)

    await cut("lease_event", notified(db, "lease"))
    await emitted(db)

    assert len(await taken(acts)) == 1
    await ended_with(history)
    assert not hub.leases.is_reading


async def test_an_idle_connection_that_is_cut_costs_nothing(hub: Hub, db: Connection) -> None:
    history = await subscribe_lease_history(hub)
    await claimed_many(db, 1)
    await taken(history)
    for row in await db.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'flowfabric reader'"
        " AND datname = current_database()"
    ):
        await disconnected(db, row["pid"])
    [task] = await claimed_many(db, 1)

    try:
        [event] = await taken(history)
    except StreamDisconnected as lost:  # it was just about to be used
        [event] = await taken(await subscribe_lease_history(hub, lost.cursor))

    assert event.execution_id == task.lease.execution_id


async def test_a_listener_that_is_cut_costs_nothing(hub: Hub, db: Connection) -> None:
    history = await subscribe_lease_history(hub)
    for row in await db.fetch(LISTENING + " AND datname = current_database()"):
        await disconnected(db, row["pid"])

    [task] = await claimed_many(db, 1)

    assert [event.execution_id for event in await taken(history)] == [task.lease.execution_id]


async def test_a_replay_that_is_cut_ends_or_goes_on_like_its_family(
    ff_dsn: str, db: Connection, cut: Cut
) -> None:
    async with opened(ff_dsn, memory=4) as hub:
        ends, history = await subscribe_completions(hub), await subscribe_lease_history(hub)
        old_ends, old_history = ends.cursor, history.cursor
        done = [await completed(db) for _ in range(12)]
        await taken(ends, 12)
        await taken(history, 24)

        replay = await subscribe_completions(hub, old_ends)
        replaying = _Begun(taken(replay, 12))
        await cut("completion_event", replaying)
        assert [event.execution_id for event in await replaying.task] == done

        replay_of_leases = await subscribe_lease_history(hub, old_history)
        ending = _Begun(ended_with(replay_of_leases))
        await cut("lease_event", ending)
        assert await ending.task == old_history
        assert hub.leases.is_reading
        told = await taken(await subscribe_lease_history(hub, old_history), 24)
        assert [event.execution_id for event in told[::2]] == done


class _Begun:
    """Something that begins when it is called, and goes on by itself."""

    def __init__(self, call: Coroutine[Any, Any, Any]) -> None:
        self._call = call

    async def __call__(self) -> None:
        self.task = asyncio.create_task(self._call)
