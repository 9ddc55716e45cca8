"""terminal → gone: the sweep forgets what ended longer ago than its lane keeps it."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lanes.set_lane_retention import KEEP, set_lane_retention
from flowfabric.engine.retention.delete_finished import delete_finished
from flowfabric.policy import DEFAULT_RETENTION
from flowfabric.reconcile.sweeps import SWEEPS
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import RUNNABLE, TERMINAL, Another, execution

DAY = 24 * 3600


async def test_a_lane_that_says_nothing_keeps_a_day(db: Connection, clock: Clock) -> None:
    assert timedelta(seconds=DAY) == DEFAULT_RETENTION
    await execution(db, "cancelled")
    await clock.advance(DAY - 0.001)
    assert await delete_finished(db, limit=10) == 0
    await clock.advance(0.001)

    assert await delete_finished(db, limit=10) == 1


async def test_a_lane_keeps_as_long_as_it_says(db: Connection, clock: Clock) -> None:
    await execution(db, "cancelled")
    await set_lane_retention(db, "default", 60)
    await clock.advance(59.999)
    assert await delete_finished(db, limit=10) == 0
    await clock.advance(0.001)

    assert await delete_finished(db, limit=10) == 1


async def test_a_lane_may_keep_for_ever(db: Connection, clock: Clock) -> None:
    await execution(db, "cancelled")
    await set_lane_retention(db, "default", KEEP)
    await clock.advance(100 * 365 * DAY)

    assert await delete_finished(db, limit=10) == 0


async def test_a_lane_that_says_nothing_any_more_keeps_a_day(db: Connection, clock: Clock) -> None:
    await execution(db, "cancelled")
    await set_lane_retention(db, "default", KEEP)
    await set_lane_retention(db, "default", None)
    await clock.advance(DAY)

    assert await delete_finished(db, limit=10) == 1


async def test_each_lane_keeps_its_own_time(db: Connection, clock: Clock) -> None:
    for lane in ("default", "short", "long", "always"):
        await execution(db, "cancelled", lane_id=lane)
    await set_lane_retention(db, "short", 60)
    await set_lane_retention(db, "long", 30 * DAY)
    await set_lane_retention(db, "always", KEEP)
    gone = []

    for wait in (60, DAY - 60, 29 * DAY, 365 * DAY):
        await clock.advance(wait)
        gone.append(await delete_finished(db, limit=10))

    assert gone == [1, 1, 1, 0]


@pytest.mark.parametrize("state", TERMINAL)
async def test_however_it_ended_it_is_forgotten(db: Connection, clock: Clock, state: str) -> None:
    await execution(db, state)
    await clock.advance(DAY)

    assert await delete_finished(db, limit=10) == 1

    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0


@pytest.mark.parametrize("state", [*RUNNABLE, "active"])
async def test_what_has_not_ended_is_never_forgotten(
    db: Connection, clock: Clock, state: str
) -> None:
    await execution(db, state)
    await clock.advance(365 * DAY)
    before = await given.everything(db)

    assert await delete_finished(db, limit=10) == 0

    assert await given.everything(db) == before


async def test_a_sweep_keeps_to_its_limit(db: Connection, clock: Clock) -> None:
    for lane in ("default", "mail", "default"):
        await execution(db, "cancelled", lane_id=lane)
    await clock.advance(DAY)

    assert [await delete_finished(db, limit=2) for _ in range(3)] == [2, 1, 0]


async def test_what_another_sweeper_forgets_is_passed_over(
    db: Connection, another: Another, clock: Clock
) -> None:
    for _ in range(3):
        await execution(db, "cancelled")
    await clock.advance(DAY)
    first = await another()
    async with first.transaction():
        assert await delete_finished(first, limit=2) == 2
        assert await delete_finished(db, limit=10) == 1

    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0


async def test_it_is_swept_every_twenty_seconds(
    db: Connection, clock: Clock, ff_sweep: Callable[[], Awaitable[int]]
) -> None:
    await execution(db, "cancelled")
    await clock.advance(DAY)

    await ff_sweep()

    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0
    assert [sweep.every for sweep in SWEEPS if sweep.step is delete_finished] == [20.0]
