"""Wake-ups: a hint that arrives quickly, and a deadline for when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.listen import Listener, leave, rung, wait_for
from flowfabric.db.rows import Connection
from tests.db.facts import disconnected, until

LISTENERS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'flowfabric listener'"
    " AND datname = current_database()"
)


@pytest.fixture
async def listener(ff_dsn: str) -> AsyncGenerator[Listener]:
    """A listener that listens."""
    listener = Listener(DatabaseConfig(dsn=ff_dsn))
    listener.start()
    async with asyncio.timeout(10):
        await listener.connected.wait()
    try:
        yield listener
    finally:
        await listener.close()


async def notify(db: Connection, topic: str) -> None:
    await db.execute("SELECT pg_notify('ff_wake', $1)", topic)


# Bells.


async def test_a_notification_rings_the_bell_of_its_topic(
    listener: Listener, db: Connection
) -> None:
    with listener.bell("lane:blue") as blue, listener.bell("lane:red") as red:
        await notify(db, "lane:blue")

        assert await rung(blue, 10)
        assert not red.is_set()


async def test_a_bell_hears_all_its_topics_and_is_cleared_by_waiting(
    listener: Listener, db: Connection
) -> None:
    with listener.bell("lane:blue", "completion") as bell:
        await notify(db, "completion")
        assert await rung(bell, 10)
        assert not bell.is_set()

        await notify(db, "lane:blue")
        assert await rung(bell, 10)


async def test_everybody_who_waits_for_a_topic_is_woken(listener: Listener, db: Connection) -> None:
    with listener.bell("completion") as one, listener.bell("completion") as two:
        await notify(db, "completion")

        assert await asyncio.gather(rung(one, 10), rung(two, 10)) == [True, True]


async def test_a_bell_that_was_put_away_is_silent(listener: Listener, db: Connection) -> None:
    with listener.bell("completion") as gone:
        pass
    with listener.bell("completion") as bell:
        await notify(db, "completion")
        assert await rung(bell, 10)

    assert not gone.is_set()


async def test_a_wait_without_a_bell_ends_at_its_time(listener: Listener) -> None:
    clock = asyncio.get_running_loop().time
    with listener.bell("completion") as bell:
        began = clock()

        assert not await rung(bell, 0.05)

    assert clock() - began >= 0.05


async def test_a_bell_that_rang_before_the_wait_is_heard(
    listener: Listener, db: Connection
) -> None:
    with listener.bell("completion") as bell:
        await notify(db, "completion")
        async with asyncio.timeout(10):
            await bell.wait()

        assert await rung(bell, 0)


# The connection.


async def test_a_listener_that_lost_its_connection_comes_back_and_rings_every_bell(
    listener: Listener, db: Connection
) -> None:
    with listener.bell("lane:blue") as blue, listener.bell("completion") as completion:
        old = await db.fetchval(LISTENERS)
        await disconnected(db, old)

        assert await rung(blue, 10)
        assert await rung(completion, 10)
        assert listener.connected.is_set()
        assert await db.fetchval(LISTENERS) not in (None, old)

        await notify(db, "lane:blue")
        assert await rung(blue, 10)
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

    with listener.bell("completion") as bell:
        await notify(db, "completion")
        assert not await rung(bell, 0.05)

    assert await db.fetchval(LISTENERS) is None
    await listener.close()


async def test_a_server_that_is_not_there_costs_time_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = Listener(DatabaseConfig(dsn="postgresql://user:s3cr3t-marker@127.0.0.1:1/app"))
    listener.start()

    with listener.bell("completion") as bell:
        assert not await rung(bell, 0.05)
        assert not listener.connected.is_set()

    await listener.close()
    assert "cannot listen, polling instead" in caplog.text
    assert "s3cr3t-marker" not in caplog.text


# Nobody waiting: nobody is notified.


async def woken(db: Connection, topic: str) -> bool:
    return await db.fetchval("SELECT ff.wake($1)", topic)


async def test_only_a_topic_that_somebody_waits_for_is_notified(
    listener: Listener, db: Connection
) -> None:
    with listener.bell("lane:blue") as blue, listener.bell("lane:red") as red:
        await wait_for(db, "w-1", ["lane:blue", "completion"])

        assert not await woken(db, "lane:red")
        assert await woken(db, "lane:blue")

        assert await rung(blue, 10)
        assert not red.is_set()


async def test_a_waiter_that_left_is_not_notified(db: Connection) -> None:
    await wait_for(db, "w-1", ["lane:blue", "completion"])
    await wait_for(db, "w-2", ["lane:blue"])
    await leave(db, "w-1")

    assert not await woken(db, "completion")
    assert await woken(db, "lane:blue")


async def test_a_waiter_is_forgotten_after_its_time_and_may_renew_it(db: Connection) -> None:
    await wait_for(db, "w-1", ["completion"])
    left = await db.fetchval("SELECT waiting_until_ms - ff.now_ms() FROM ff.waiter")
    assert 14_000 < left <= 15_000
    await db.execute("UPDATE ff.waiter SET waiting_until_ms = ff.now_ms()")
    assert not await woken(db, "completion")

    await wait_for(db, "w-1", ["completion"])

    assert await woken(db, "completion")
    assert await db.fetchval("SELECT count(*) FROM ff.waiter") == 1


async def test_a_transaction_that_rolls_back_rings_nobody(
    listener: Listener, db: Connection
) -> None:
    await wait_for(db, "w-1", ["lane:blue", "completion"])
    with listener.bell("lane:blue") as blue, listener.bell("completion") as completion:
        transaction = db.transaction()
        await transaction.start()
        assert await woken(db, "lane:blue")
        await transaction.rollback()
        assert await woken(db, "completion")

        assert await rung(completion, 10)
        assert not blue.is_set()
