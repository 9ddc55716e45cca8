"""What ended over time: counted once, whatever order events become visible in."""

from datetime import timedelta

import pytest

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.activity.compact_activity import activity_old, compact_activity
from flowfabric.engine.activity.count_ended import count_ended
from flowfabric.engine.activity.histogram import added, begins_at, counted, quantile
from flowfabric.engine.activity.read_activity import Activity, read_activity
from flowfabric.engine.activity.read_lane_activity import read_lane_activity
from flowfabric.engine.activity.read_usual_times import read_usual_times
from flowfabric.engine.activity.roll_up_activity import activity_due, roll_up_activity
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.fail import Failure, fail
from flowfabric.errors import ValidationError
from flowfabric.testing import Clock
from tests import given
from tests.worker.facts import eventually


async def passed(db: Connection) -> None:
    """One pass of the sweep."""
    async with db.transaction():
        await roll_up_activity(db, 500)


async def rolled_up(db: Connection) -> None:
    """Every completion is counted, once transactions of before have ended: of any database."""

    async def is_counted() -> bool:
        await passed(db)
        return not await activity_due(db)

    await eventually(is_counted, within=30)


async def done(db: Connection, clock: Clock, *, waits: float, runs: float, ok: bool = True) -> None:
    await given.created(db)
    await clock.advance(waits)
    [task] = await claim(db, given.WORKER, ttl=3600)
    await clock.advance(runs)
    if ok:
        await complete(db, [Completion(task.lease)])
    else:
        await fail(db, [Failure(lease=task.lease, reason="boom")])


def totals(found: Activity) -> list[dict[str, int]]:
    return [step.ended for step in found.steps if step.ended]


async def test_a_database_that_was_restored_on_another_server_goes_on_counting(
    db: Connection, clock: Clock
) -> None:
    """There the last transaction had a number to which this server has not come yet."""
    await done(db, clock, waits=2, runs=1)
    await passed(db)
    await db.execute("UPDATE ff.activity_place SET next_xid = 4611686018427387904")

    await rolled_up(db)

    assert (await read_activity(db, window=600)).whole.ended == {"success": 1}


async def test_what_ended_is_counted_by_minute_and_outcome(db: Connection, clock: Clock) -> None:
    assert not await activity_due(db)
    await done(db, clock, waits=2, runs=1)
    await done(db, clock, waits=2, runs=1, ok=False)
    await clock.advance(60)
    await done(db, clock, waits=2, runs=8)
    assert await activity_due(db)
    await rolled_up(db)
    await passed(db)

    found = await read_activity(db, window=600, steps=10)

    assert totals(found)[-1] == {"success": 1}
    assert found.whole.ended == {"success": 2, "failed": 1}
    assert found.whole.waited_p50 == pytest.approx(2, rel=0.5)
    assert found.whole.ran_p95 == pytest.approx(8, rel=0.5)
    assert (found.step, len(found.steps)) == (60.0, 10)
    assert not await activity_due(db)
    assert (await read_activity(db, window=600, namespace="x")).whole.ended == {}
    assert (await read_activity(db, window=600, lane_id="x")).whole.ended == {}
    assert (await read_activity(db, window=600, execution_kind="x")).whole.ended == {}
    assert (await read_activity(db, window=600, namespace="default")).whole.ended
    assert await count_ended(db, window=600) == {"success": 2, "failed": 1}
    assert await count_ended(db, window=60) == {"success": 1}
    assert await count_ended(db, window=600, execution_kinds=["job"], lane_id="default")
    assert await count_ended(db, window=600, namespace="x") == {}
    assert await count_ended(db, window=600, lane_id="x") == {}
    assert await count_ended(db, window=600, execution_kinds=["x"]) == {}
    by_minute = (await read_lane_activity(db, window=600))["default"]
    assert (len(by_minute), sum(by_minute), by_minute[-1]) == (10, 3, 1)
    assert await read_lane_activity(db, window=600, namespace="x") == {}
    usual = await read_usual_times(db, ["job", "other"])
    assert usual == {"job": pytest.approx(1, rel=0.5)}
    assert await read_usual_times(db, ["job"], namespace="x") == {}


@pytest.mark.session("holds a transaction open on a connection of its own")
async def test_an_event_that_becomes_visible_late_is_counted_too(
    db: Connection, clock: Clock, ff_dsn: str
) -> None:
    await given.created(db)
    await given.created(db)
    first, second = await claim(db, given.WORKER, ttl=30, limit=2)
    late = await connect(DatabaseConfig(dsn=ff_dsn), role="tests")
    try:
        uncommitted = late.transaction()
        await uncommitted.start()
        await complete(late, [Completion(first.lease)])
        await complete(db, [Completion(second.lease)])
        for _ in range(3):
            await passed(db)
        assert (await read_activity(db, window=600)).whole.ended == {}
        await uncommitted.commit()
    finally:
        await late.close()
    await rolled_up(db)

    assert (await read_activity(db, window=600)).whole.ended == {"success": 2}


async def test_minutes_become_hours_and_are_deleted_in_the_end(
    db: Connection, clock: Clock
) -> None:
    await done(db, clock, waits=1, runs=1)
    await clock.advance(60)
    await done(db, clock, waits=1, runs=1)
    await rolled_up(db)
    assert not await activity_old(db)
    await clock.advance(timedelta(hours=26))
    assert await activity_old(db)
    async with db.transaction():
        assert await compact_activity(db, 100) == 2
    assert not await activity_old(db)
    assert await db.fetchval("SELECT sum(ended) FROM ff.activity WHERE step_ms = 3600000") == 2
    assert (await read_activity(db, window=timedelta(days=2))).whole.ended == {"success": 2}
    await clock.advance(timedelta(days=30))
    async with db.transaction():
        assert await compact_activity(db, 100) > 0
    assert await db.fetchval("SELECT count(*) FROM ff.activity") == 0


async def test_it_can_be_turned_off(
    db: Connection, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await done(db, clock, waits=1, runs=1)
    monkeypatch.setenv("FF_ACTIVITY", "0")
    assert not await activity_due(db)


async def test_a_window_that_cannot_be_is_refused(db: Connection) -> None:
    for window in (1, timedelta(days=31)):
        with pytest.raises(ValidationError, match="window"):
            await read_activity(db, window=window)


def test_a_quantile_is_within_its_bucket() -> None:
    assert quantile([], 0.5) is None
    histogram = counted([(3, 90), (21, 10)])
    assert len(histogram) == 22
    assert begins_at(3) <= (quantile(histogram, 0.5) or 0) <= begins_at(4)
    assert begins_at(21) <= (quantile(histogram, 0.95) or 0) <= begins_at(22)
    assert added([1], [1, 2]) == added([1, 2], [1]) == [2, 2]
