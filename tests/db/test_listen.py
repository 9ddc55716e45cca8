"""Notifications: a hint that arrives quickly, and a deadline for when it does not."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.listen import Listener, signalled
from flowfabric.db.rows import Connection
from tests.db.facts import disconnected, until

pytestmark = pytest.mark.session("is about LISTEN")

LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'flowfabric listener'"
    " AND datname = current_database()"
)


async def notify(db: Connection, topic: str) -> None:
    await db.execute("SELECT pg_notify('ff_wake', $1)", topic)


# Subscriptions.


async def test_a_notification_sets_the_event_of_its_topic(
    listener: Listener, db: Connection
) -> None:
    blue, red = listener.subscribe("lane:blue"), listener.subscribe("lane:red")

    await notify(db, "lane:blue")

    assert await signalled(blue, 10)
    assert not red.is_set()


async def test_an_event_is_set_by_all_its_topics_and_cleared_by_waiting(
    listener: Listener, db: Connection
) -> None:
    event = listener.subscribe("lane:blue", "completion")

    await notify(db, "completion")
    assert await signalled(event, 10)
    assert not event.is_set()

    await notify(db, "lane:blue")
    assert await signalled(event, 10)


async def test_every_subscriber_of_a_topic_is_signalled(listener: Listener, db: Connection) -> None:
    one, two = listener.subscribe("completion"), listener.subscribe("completion")

    await notify(db, "completion")

    assert await asyncio.gather(signalled(one, 10), signalled(two, 10)) == [True, True]


async def test_an_event_that_was_unsubscribed_is_not_set(
    listener: Listener, db: Connection
) -> None:
    gone, event = listener.subscribe("completion", "lease"), listener.subscribe("completion")
    listener.unsubscribe(gone)

    await notify(db, "lease")
    await notify(db, "completion")

    assert await signalled(event, 10)
    assert not gone.is_set()


async def test_a_wait_without_a_signal_ends_at_its_time(listener: Listener) -> None:
    clock = asyncio.get_running_loop().time
    event = listener.subscribe("completion")
    began = clock()

    assert not await signalled(event, 0.05)

    assert clock() - began >= 0.05


async def test_a_signal_that_came_before_the_wait_counts(
    listener: Listener, db: Connection
) -> None:
    event = listener.subscribe("completion")
    await notify(db, "completion")
    async with asyncio.timeout(10):
        await event.wait()

    assert await signalled(event, 0)


# The connection.


async def test_a_listener_that_lost_its_connection_comes_back_and_signals_everything(
    listener: Listener, db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="flowfabric.listen")
    blue, completion = listener.subscribe("lane:blue"), listener.subscribe("completion")
    old = await db.fetchval(LISTENERS)
    assert listener.connections == 1

    await disconnected(db, old)

    assert await signalled(blue, 10)
    assert await signalled(completion, 10)
    assert listener.connected.is_set()
    assert listener.connections == 2
    lost = "the listening connection was lost; reconnecting"
    assert caplog.messages == [lost, "listening again"]
    assert await db.fetchval(LISTENERS) not in (None, old)

    await notify(db, "lane:blue")
    assert await signalled(blue, 10)
    assert not completion.is_set()


async def test_closing_ends_the_connection(ff_dsn: str, db: Connection) -> None:
    listener = Listener(DatabaseConfig(dsn=ff_dsn))
    listener.start()
    async with asyncio.timeout(10):
        await listener.connected.wait()
    assert await db.fetchval(LISTENERS)

    await listener.close()

    async def gone() -> bool:
        return await db.fetchval(LISTENERS) is None

    await until(gone)
    assert not listener.connected.is_set()


@pytest.mark.parametrize("off", [{"listen": False}, {"pooler": True}])
async def test_where_listening_is_off_a_wait_ends_at_its_time(
    ff_dsn: str, db: Connection, off: dict[str, Any]
) -> None:
    listener = Listener(DatabaseConfig(dsn=ff_dsn, **off))
    listener.start()

    event = listener.subscribe("completion")
    await notify(db, "completion")
    assert not await signalled(event, 0.05)

    assert await db.fetchval(LISTENERS) is None
    await listener.close()


async def test_a_server_that_is_not_there_costs_time_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = Listener(DatabaseConfig(dsn="postgresql://user:s3cr3t-marker@127.0.0.1:1/app"))
    listener.start()

    assert not await signalled(listener.subscribe("completion"), 0.05)
    assert not listener.connected.is_set()

    await listener.close()
    assert "cannot listen, polling instead" in caplog.text
    assert "s3cr3t-marker" not in caplog.text
