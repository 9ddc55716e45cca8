"""A schedule whose next instant is nearer than the next look is fired in time all the same."""

import asyncio
import random
import statistics
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.schedules.create_schedule import create_schedule
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.schedules.pause_schedule import pause_schedule
from flowfabric.engine.schedules.resume_schedule import resume_schedule
from flowfabric.engine.schedules.update_schedule import update_schedule
from flowfabric.instants import instant
from flowfabric.reconcile.loop import LOOK_EVERY, reconcile
from flowfabric.testing import Clock
from tests.db.facts import until
from tests.engine.controls import Another
from tests.engine.schedules.stored import BEGIN, define, stored

SWEEPS = "SELECT EXISTS (SELECT FROM ff.sweeper WHERE NOT standby)"
FIRED = "SELECT count(*) = $1 FROM ff.schedule_fire"
LATE = "SELECT recorded_at_ms - fire_at_ms AS late FROM ff.schedule_fire"
IN_TIME = 200
"""Milliseconds; by looks alone it would be about 350."""
MANY = 12
NEAR = 250
"""Milliseconds until the only instant of a schedule."""

Create = Callable[[ScheduleDefinition], Awaitable[object]]


async def lateness(db: Connection, engine: Engine, create: Create) -> list[int]:
    """By how many milliseconds each of many near instants was fired late."""
    chance = random.Random(1)
    sweeping = asyncio.create_task(reconcile(engine.pool, "w-1", engine.listener))
    try:
        await until(lambda: db.fetchval(SWEEPS))
        for number in range(MANY):
            await asyncio.sleep(chance.uniform(0, LOOK_EVERY))  # anywhere between two looks
            at = instant(await db.fetchval("SELECT ff.now_ms()") + NEAR)
            await create(define(f"near-{number}", at=at))
        await until(lambda: db.fetchval(FIRED, MANY))
        return [row["late"] for row in await db.fetch(LATE)]
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])


@pytest.mark.timing
@pytest.mark.timeout(40)
@pytest.mark.session("listens")
async def test_a_near_instant_of_another_process_is_fired_in_time(
    db: Connection, ff_engine: Engine
) -> None:
    ff_engine.listener.start()
    async with asyncio.timeout(10):
        await ff_engine.listener.connected.wait()

    async def create(definition: ScheduleDefinition) -> None:
        async with db.transaction():
            await create_schedule(db, definition)

    late = await lateness(db, ff_engine, create)

    assert statistics.median(late) <= IN_TIME, sorted(late)


@pytest.mark.timing
@pytest.mark.timeout(40)
async def test_without_listen_a_near_instant_of_the_same_process_is_fired_in_time(
    db: Connection, ff_dsn: str
) -> None:
    engine = await Engine.connect(DatabaseConfig(dsn=ff_dsn, listen=False))
    try:
        late = await lateness(db, engine, engine.create_schedule)
    finally:
        await engine.close()

    assert statistics.median(late) <= IN_TIME, sorted(late)


@pytest.mark.session("listens")
async def test_what_can_bring_an_instant_nearer_wakes_the_process_that_sweeps(
    db: Connection, clock: Clock, another: Another
) -> None:
    heard: list[str] = []
    listening = await another()
    await listening.add_listener("ff_wake", lambda *told: heard.append(told[-1]))

    async def told_after(change: Awaitable[object]) -> list[str]:
        heard.clear()
        await change
        await listening.execute("SELECT")  # what was notified before is delivered with the answer
        return list(heard)

    await clock.set(BEGIN)
    assert await told_after(stored(db, clock, "unheard")) == [], "nobody sweeps"
    await db.execute(
        "INSERT INTO ff.sweeper (standby, worker_instance_id, held_until_ms)"
        " VALUES (false, 'w', ff.now_ms() + 60000)"
    )
    assert await told_after(stored(db, clock)) == ["schedule"]
    assert await told_after(stored(db, clock)) == [], "it exists already"
    assert await told_after(pause_schedule(db, "hourly")) == []
    assert await told_after(resume_schedule(db, "hourly")) == ["schedule"]
    assert await told_after(resume_schedule(db, "hourly")) == []
    assert await told_after(update_schedule(db, define(catch_up=3))) == ["schedule"]
    assert await told_after(update_schedule(db, define(catch_up=3))) == []
    await clock.advance(timedelta(minutes=2))
    assert await told_after(update_schedule(db, define())) == [], "the role has run out"
