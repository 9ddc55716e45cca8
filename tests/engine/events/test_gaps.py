"""An id that is missing may still come: nothing behind it is told before that is known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.events.subscribe import Hub
from flowfabric.engine.events.subscribe_completions import subscribe_completions
from flowfabric.engine.events.subscribe_lease_history import subscribe_lease_history
from tests import given
from tests.engine.events.facts import claimed_many, completed, taken, true
from tests.worker.facts import database_time, eventually, has_asked

Another = Callable[[], Awaitable[Connection]]


async def test_a_gap_that_was_rolled_back_is_passed(
    hub: Hub, db: Connection, another: Another
) -> None:
    history = await subscribe_lease_history(hub)
    writer = await another()
    undone = writer.transaction()
    await undone.start()
    await claimed_many(writer, 3)
    await undone.rollback()
    [task] = await claimed_many(db, 1)

    [event] = await taken(history)

    assert event.execution_id == task.lease.execution_id
    await true(lambda: hub.leases.gap_age == 0.0)


@pytest.mark.session("begins when a reader is notified")
async def test_a_writer_that_stays_open_delays_what_comes_behind_it_and_loses_nothing(
    hub: Hub, db: Connection, another: Another
) -> None:
    history = await subscribe_lease_history(hub)
    [before] = await claimed_many(db, 1)
    assert [event.execution_id for event in await taken(history)] == [before.lease.execution_id]
    writer = await another()
    late = writer.transaction()
    await late.start()
    [slow] = await claimed_many(writer, 1)

    [quick] = await claimed_many(db, 1)
    waiting = asyncio.create_task(taken(history, 2))
    await true(lambda: hub.gap_ages()["lease"] > 0.1)
    assert not waiting.done()
    assert hub.gap_ages()["completion"] == 0.0
    await late.commit()

    told = await waiting
    assert [event.execution_id for event in told] == [
        slow.lease.execution_id,
        quick.lease.execution_id,
    ]
    await true(lambda: hub.leases.gap_age == 0.0)


async def test_from_now_waits_for_writers_that_may_still_commit(
    hub: Hub, db: Connection, another: Another
) -> None:
    await claimed_many(db, 1)
    writer = await another()
    late = writer.transaction()
    await late.start()
    [slow] = await claimed_many(writer, 1)
    [quick] = await claimed_many(db, 1)
    since = await database_time(db)
    subscribing = asyncio.create_task(subscribe_lease_history(hub))
    await eventually(lambda: has_asked(db, "events.oldest_running", since))
    assert not subscribing.done()

    await late.commit()
    history = await subscribing

    [after] = await claimed_many(db, 1)
    assert [event.execution_id for event in await taken(history)] == [after.lease.execution_id]
    assert slow.lease.execution_id != quick.lease.execution_id


async def test_an_old_cursor_is_served_while_a_writer_holds_up_what_is_new(
    hub: Hub, db: Connection, another: Another
) -> None:
    live = await subscribe_lease_history(hub)
    start = live.cursor
    old = [task.lease.execution_id for task in await claimed_many(db, 5)]
    await taken(live, 5)
    writer = await another()
    late = writer.transaction()
    await late.start()
    await claimed_many(writer, 1)
    await claimed_many(db, 1)
    await true(lambda: hub.leases.gap_age > 0)

    replay = await subscribe_lease_history(hub, start)

    assert sorted(event.execution_id for event in await taken(replay, 5)) == sorted(old)
    await late.rollback()
    assert len(await taken(replay)) == 1


async def test_many_gaps_and_more_events_than_one_page_arrive_in_order(
    hub: Hub, db: Connection, another: Another
) -> None:
    history = await subscribe_lease_history(hub)
    start = history.cursor
    writer = await another()
    for number in range(1, 31):
        undone = writer.transaction()
        await undone.start()
        await claimed_many(writer, number)
        await (undone.rollback() if number % 3 else undone.commit())
        await claimed_many(db, 20)
    committed = [
        row["event_id"] for row in await db.fetch("SELECT event_id FROM ff.lease_event ORDER BY 1")
    ]

    told = await taken(history, len(committed))
    again = await taken(await subscribe_lease_history(hub, start), len(committed))

    assert [event.event_id for event in told] == committed
    assert again == told


async def test_a_row_that_cannot_be_understood_is_logged_and_passed(
    hub: Hub, db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    ends = await subscribe_completions(hub)
    start = ends.cursor
    await ends.aclose()
    first, strange, last = [await completed(db) for _ in range(3)]
    await db.execute("ALTER TABLE ff.completion_event ALTER outcome TYPE text")
    try:
        await db.execute(
            "UPDATE ff.completion_event SET outcome = 'exploded' WHERE execution_id = $1",
            strange.uuid,
        )
        for cursor in (start, start):  # from the table, then from memory
            again = await subscribe_completions(hub, cursor)
            assert [event.execution_id for event in await taken(again, 2)] == [first, last]
        strange = await given.created(db)
    finally:
        await db.execute(
            "DELETE FROM ff.completion_event;"
            "ALTER TABLE ff.completion_event ALTER outcome TYPE ff.completion_outcome"
        )
    assert "cannot be read, skipping it: 'exploded' is not a valid CompletionOutcome" in caplog.text
