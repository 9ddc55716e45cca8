"""A waiter: woken by what its topics are notified of, registered only while that is of use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db import waiter as module
from flowfabric.db.listen import Listener, signalled
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.waiter import WAITING_FOR, Waiter, deregister, register
from tests.db.facts import disconnected, until

pytestmark = pytest.mark.session("registers for notifications, which needs LISTEN")

Another = Callable[[], Awaitable[Connection]]

NEVER = 3600.0
"""A poll that no test waits for: whatever ends a wait is something else."""
BLOCKED = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    " AND cardinality(pg_blocking_pids(pid)) > 0 AND query LIKE '%ff.waiter%'"
)


class Time:
    """The monotonic clock of the module under test; it stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
async def pool(ff_dsn: str) -> AsyncGenerator[Pool]:
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn), role="waiter")
    try:
        yield pool
    finally:
        await pool.close()


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look soon after a registration comes never, as the poll; one test is about it."""
    monkeypatch.setattr(module, "_SETTLED_AFTER", NEVER)


def waiting(pool: Pool, listener: Listener, *topics: str, **settings: Any) -> Waiter:
    """A waiter that does not poll, for `completion` unless told otherwise."""
    return Waiter(
        pool, listener, topics or ("completion",), **{"name": "w", "poll": NEVER, **settings}
    )


async def woken(db: Connection, topic: str = "completion") -> bool:
    """Notify the topic as the statements do; was there anybody to notify?"""
    return await db.fetchval("SELECT ff.wake($1)", topic)


async def registered(db: Connection) -> int:
    return await db.fetchval("SELECT count(*) FROM ff.waiter WHERE waiting_until_ms > ff.now_ms()")


async def returns(wait: Awaitable[Any]) -> Any:
    async with asyncio.timeout(10):
        return await wait


async def asleep(waiter: Waiter) -> asyncio.Task[bool]:
    """A wait that has begun and does not return by itself."""
    task = asyncio.create_task(waiter.wait())
    done, _ = await asyncio.wait({task}, timeout=0.1)
    assert not done, "it returned without a signal"
    return task


async def ended(task: asyncio.Task[bool]) -> None:
    task.cancel()
    await asyncio.wait({task})


# The statements.


async def test_only_a_topic_that_has_a_waiter_is_notified(
    listener: Listener, db: Connection
) -> None:
    blue, red = listener.subscribe("lane:blue"), listener.subscribe("lane:red")
    await register(db, "w-1", ["lane:blue", "completion"])

    assert not await woken(db, "lane:red")
    assert await woken(db, "lane:blue")

    assert await signalled(blue, 10)
    assert not red.is_set()


async def test_a_waiter_that_deregistered_is_not_notified(db: Connection) -> None:
    await register(db, "w-1", ["lane:blue", "completion"])
    await register(db, "w-2", ["lane:blue"])
    await deregister(db, "w-1")

    assert not await woken(db, "completion")
    assert await woken(db, "lane:blue")


async def test_a_registration_expires_and_may_be_renewed(db: Connection) -> None:
    await register(db, "w-1", ["completion"])
    left = await db.fetchval("SELECT waiting_until_ms - ff.now_ms() FROM ff.waiter")
    assert 14_000 < left <= 15_000
    await db.execute("UPDATE ff.waiter SET waiting_until_ms = ff.now_ms()")
    assert not await woken(db)

    await register(db, "w-1", ["completion"])

    assert await woken(db)
    assert await db.fetchval("SELECT count(*) FROM ff.waiter") == 1


async def test_a_transaction_that_rolls_back_notifies_nobody(
    listener: Listener, db: Connection
) -> None:
    await register(db, "w-1", ["lane:blue", "completion"])
    blue, completion = listener.subscribe("lane:blue"), listener.subscribe("completion")
    transaction = db.transaction()
    await transaction.start()
    assert await woken(db, "lane:blue")
    await transaction.rollback()
    assert await woken(db, "completion")

    assert await signalled(completion, 10)
    assert not blue.is_set()


# No signal is lost.


async def test_the_first_wait_registers_and_sends_its_owner_to_look_once_more(
    pool: Pool, listener: Listener, db: Connection
) -> None:
    async with waiting(pool, listener, "lane:blue", "lane:red") as waiter:
        assert await registered(db) == 0

        await returns(waiter.wait())

        assert await registered(db) == 2
        sleeping = await asleep(waiter)
        assert await woken(db, "lane:red")
        await returns(sleeping)


async def test_a_wait_tells_a_signal_from_the_time_to_poll(
    pool: Pool, listener: Listener, db: Connection
) -> None:
    async with waiting(pool, listener, poll=0.01) as waiter:
        assert await returns(waiter.wait())  # registered: a signal may have been missed
        assert await returns(waiter.wait())  # also that of a transaction before it
        assert not await returns(waiter.wait())
        waiter.wake()
        assert await returns(waiter.wait())


async def test_a_signal_that_comes_while_the_owner_looks_ends_its_next_wait(
    pool: Pool, listener: Listener, db: Connection
) -> None:
    async with waiting(pool, listener) as waiter:
        await returns(waiter.wait())
        await woken(db)
        await until(lambda: _is_set(waiter))  # the owner looks meanwhile

        await returns(waiter.wait())

        await ended(await asleep(waiter))


async def _is_set(waiter: Waiter) -> bool:
    await asyncio.sleep(0)
    event = waiter._event
    return event is not None and event.is_set()


async def test_what_was_about_to_be_committed_at_the_registration_is_found_soon(
    pool: Pool, listener: Listener, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SETTLED_AFTER", 0.05)
    async with waiting(pool, listener) as waiter:
        async with db.transaction():
            assert not await woken(db)  # it looks for waiters, and finds none
            assert await returns(waiter.wait())  # the owner looks once more, before the commit
        assert await returns(waiter.wait())  # and again, though nobody was notified
        await ended(await asleep(waiter))


async def test_a_look_answers_the_signals_before_it(
    pool: Pool, listener: Listener, db: Connection
) -> None:
    async with waiting(pool, listener) as waiter:
        await returns(waiter.wait())
        await woken(db)
        await until(lambda: _is_set(waiter))

        waiter.looking()

        await ended(await asleep(waiter))


async def test_its_owner_may_be_woken_from_within_the_process(
    pool: Pool, listener: Listener
) -> None:
    async with waiting(pool, listener) as waiter:
        await returns(waiter.wait())
        sleeping = await asleep(waiter)
        waiter.wake()
        await returns(sleeping)

        waiter.wake()
        await returns(waiter.wait())
        await ended(await asleep(waiter))


async def test_signals_that_come_close_together_end_one_wait(
    pool: Pool, listener: Listener
) -> None:
    async with waiting(pool, listener, gather=0.1) as waiter:
        await returns(waiter.wait())
        sleeping = await asleep(waiter)
        waiter.wake()
        await asyncio.sleep(0.02)
        assert not sleeping.done()
        waiter.wake()

        await returns(sleeping)

        await ended(await asleep(waiter))


async def test_without_a_signal_a_wait_ends_at_its_poll(pool: Pool, listener: Listener) -> None:
    clock = asyncio.get_running_loop().time
    async with waiting(pool, listener, poll=0.1) as waiter:
        await returns(waiter.wait())
        began = clock()

        await returns(waiter.wait())

        assert clock() - began >= 0.08


async def test_two_waiters_of_a_topic_are_woken_and_end_on_their_own(
    pool: Pool, listener: Listener, db: Connection
) -> None:
    async with waiting(pool, listener) as one:
        await returns(one.wait())
        async with waiting(pool, listener) as two:
            await returns(two.wait())
            both = [await asleep(one), await asleep(two)]
            await woken(db)
            await asyncio.gather(*map(returns, both))

        assert await registered(db) == 1


# The registration is kept up.


async def test_a_registration_is_renewed_in_half_of_its_time_without_another_look(
    pool: Pool, listener: Listener, db: Connection, time: Time
) -> None:
    async with waiting(pool, listener) as waiter:
        await returns(waiter.wait())
        await db.execute("UPDATE ff.waiter SET waiting_until_ms = ff.now_ms() + 1")
        time.now += WAITING_FOR / 2
        await ended(await asleep(waiter))
        assert await registered(db) == 0  # it was not due

        time.now += 0.1
        await ended(await asleep(waiter))

        assert await registered(db) == 1


async def test_after_a_registration_that_expired_its_owner_looks_once_more(
    pool: Pool, listener: Listener, db: Connection, time: Time
) -> None:
    async with waiting(pool, listener) as waiter:
        await returns(waiter.wait())
        await db.execute("UPDATE ff.waiter SET waiting_until_ms = ff.now_ms()")
        time.now += WAITING_FOR

        await returns(waiter.wait())

        assert await registered(db) == 1
        await ended(await asleep(waiter))


async def test_a_lost_listener_costs_one_look_and_a_new_registration(
    pool: Pool, listener: Listener, db: Connection
) -> None:
    """A server that crashed has lost every registration, because the table is unlogged."""
    async with waiting(pool, listener) as waiter:
        await returns(waiter.wait())
        sleeping = await asleep(waiter)
        await db.execute("TRUNCATE ff.waiter")
        [pid] = await db.fetch(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'flowfabric listener'"
            " AND datname = current_database()"
        )
        await disconnected(db, pid["pid"])
        await returns(sleeping)
        async with asyncio.timeout(10):
            await listener.connected.wait()

        await returns(waiter.wait())

        assert await registered(db) == 1
        await ended(await asleep(waiter))


# And given up.


async def test_a_busy_owner_is_deregistered_and_then_registers_again(
    pool: Pool, listener: Listener, db: Connection, time: Time
) -> None:
    async with waiting(pool, listener) as waiter:
        await waiter.busy()
        await returns(waiter.wait())
        time.now += 0.2
        await waiter.busy()
        assert await registered(db) == 1  # it waited a moment ago

        time.now += 0.1
        await waiter.busy()
        assert await registered(db) == 0

        await returns(waiter.wait())
        assert await registered(db) == 1
        await ended(await asleep(waiter))


async def test_closing_deregisters_and_unsubscribes(
    pool: Pool, listener: Listener, db: Connection
) -> None:
    async with waiting(pool, listener) as waiter:
        await returns(waiter.wait())

    assert await registered(db) == 0
    assert listener._subscribed == {}


async def test_whoever_was_cancelled_while_it_registered_is_deregistered_by_closing(
    pool: Pool, listener: Listener, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = asyncio.Event()

    async def unanswered(conn: Connection, waiter_id: str, topics: list[str]) -> None:
        await register(conn, waiter_id, topics)
        committed.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "register", unanswered)
    waiter = waiting(pool, listener)
    task = asyncio.create_task(waiter.wait())
    await returns(_set(committed))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await registered(db) == 1

    await waiter.close()

    assert await registered(db) == 0


async def _set(event: asyncio.Event) -> None:
    await event.wait()


async def test_closing_takes_a_limited_time(
    pool: Pool, listener: Listener, db: Connection, another: Another
) -> None:
    waiter, holder = waiting(pool, listener), await another()
    await returns(waiter.wait())
    async with holder.transaction():
        await holder.execute("LOCK TABLE ff.waiter IN SHARE MODE")

        await returns(waiter.close())

    assert await registered(db) == 1  # it expires by itself


# Without notifications.


@pytest.mark.parametrize("off", [{"listen": False}, {"pooler": True}], ids=str)
async def test_where_listening_is_off_it_polls_with_growing_pauses_and_never_registers(
    ff_dsn: str,
    pool: Pool,
    db: Connection,
    monkeypatch: pytest.MonkeyPatch,
    off: dict[str, Any],
) -> None:
    pauses: list[float] = []

    async def recorded(event: asyncio.Event, timeout: float) -> bool:
        pauses.append(timeout)
        return False

    monkeypatch.setattr(module, "signalled", recorded)
    monkeypatch.setattr(module, "random", SimpleNamespace(uniform=lambda low, high: high))
    async with waiting(pool, Listener(DatabaseConfig(dsn=ff_dsn, **off)), first_pause=0.1) as mine:
        for _ in range(6):
            await mine.wait()
        mine.found()
        await mine.wait()

    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 0.1])
    assert await db.fetchval("SELECT count(*) FROM ff.waiter") == 0


async def test_a_pause_that_a_signal_ends_does_not_lengthen_the_next(
    ff_dsn: str, pool: Pool
) -> None:
    listener = Listener(DatabaseConfig(dsn=ff_dsn, listen=False))
    async with waiting(pool, listener, first_pause=0.01) as waiter:
        for _ in range(20):
            waiter.wake()
            await returns(waiter.wait())
        clock = asyncio.get_running_loop().time
        began = clock()

        await returns(waiter.wait())

        assert clock() - began < 0.3


async def test_a_listener_that_connects_ends_a_pause(
    ff_dsn: str, pool: Pool, db: Connection
) -> None:
    listener = Listener(DatabaseConfig(dsn=ff_dsn))
    try:
        async with waiting(pool, listener, first_pause=NEVER) as waiter:
            await returns(waiter.wait())  # the pause
            await returns(waiter.wait())  # the registration
            assert await registered(db) == 1
            await ended(await asleep(waiter))
    finally:
        await listener.close()


async def test_a_registration_that_fails_is_logged_and_tried_again_after_a_pause(
    pool: Pool,
    listener: Listener,
    db: Connection,
    another: Another,
    caplog: pytest.LogCaptureFixture,
) -> None:
    holder = await another()
    async with waiting(pool, listener) as waiter:
        async with holder.transaction():
            await holder.execute("LOCK TABLE ff.waiter IN SHARE MODE")
            failing = asyncio.create_task(waiter.wait())
            async with asyncio.timeout(10):
                while (pid := await db.fetchval(BLOCKED)) is None:
                    pass
            await disconnected(db, pid)
            await returns(failing)
        assert "cannot register for notifications, polling instead" in caplog.text

        await returns(waiter.wait())

        assert await registered(db) == 1
        await ended(await asleep(waiter))


async def test_a_database_that_is_gone_is_polled_with_pauses(
    ff_dsn: str, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by an owner whose listener has not noticed."""
    pool = await Pool.open(DatabaseConfig(dsn=ff_dsn), role="waiter")
    await pool.close()
    async with waiting(pool, listener) as waiter:
        for _ in range(3):
            await returns(waiter.wait())

    assert caplog.text.count("cannot register for notifications") == 3
