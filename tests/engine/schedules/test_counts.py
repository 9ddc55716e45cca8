"""What the process counts of schedules, and how many schedules there are."""

from __future__ import annotations

from datetime import timedelta

import pytest

from flowfabric.counters import SCHEDULE_FIRES, SCHEDULE_LATENESS
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import transact
from flowfabric.engine.engine import Engine
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.schedules.fire_schedules import fire_schedules
from flowfabric.errors import ValidationError
from flowfabric.states import ScheduleState
from flowfabric.testing import Clock
from tests import given
from tests.engine.schedules.stored import BEGIN, HOUR, stored


async def test_what_becomes_of_instants_is_counted_when_it_is_committed(
    db: Connection, clock: Clock, ff_engine: Engine
) -> None:
    before, late, seconds = SCHEDULE_FIRES.values.copy(), *_lateness()
    await given.created(db, lane_id="closed")
    await set_lane_state(db, "closed", "draining")
    await stored(db, clock, every=60, catch_up=2, overlap="queue_one")
    await stored(db, clock, "refused", lane_id="closed")
    await clock.set(BEGIN + HOUR + timedelta(minutes=120, seconds=30))

    async def fails(conn: Connection) -> None:
        assert await fire_schedules(conn, 10) == 2
        raise ValidationError("invalid_input", "after all")

    with pytest.raises(ValidationError, match="after all"):
        await transact(ff_engine.pool, "fire_schedules", fails)
    assert (SCHEDULE_FIRES.values, *_lateness()) == (before, late, seconds)

    await transact(ff_engine.pool, "fire_schedules", lambda conn: fire_schedules(conn, 10))
    await ff_engine.trigger_schedule("hourly")
    await ff_engine.trigger_schedule("hourly", force=True)
    await ff_engine.backfill_schedule("hourly", BEGIN, BEGIN + timedelta(minutes=5))

    counted = {outcome: n for (outcome,), n in (SCHEDULE_FIRES.values - before).items()}
    assert counted == {
        "missed": 178 + 2,  # of which the ledger lists 100 + 2
        "fired": 2,  # the second one waits for its turn
        "refused": 1,
        "skipped": 1,
        "triggered": 1,
        "backfilled": 5,
    }
    assert _lateness() == (late + 2, pytest.approx(seconds + 30 + 90))


def _lateness() -> tuple[int, float]:
    return SCHEDULE_LATENESS.count, SCHEDULE_LATENESS.sum


async def test_schedules_are_counted_by_state(
    db: Connection, clock: Clock, ff_engine: Engine
) -> None:
    nothing = dict.fromkeys(ScheduleState, 0)
    assert await ff_engine.count_schedules() == nothing
    for name in ("a", "b", "c", "broken"):
        await stored(db, clock, name)
    await stored(db, clock, "finished", at=BEGIN + timedelta(seconds=1))
    await stored(db, clock, "shop", namespace="shop")
    await ff_engine.pause_schedule("c")
    await db.execute("UPDATE ff.schedule SET tz = 'Mars/Olympus' WHERE name = 'broken'")
    await clock.set(BEGIN + HOUR)
    await transact(ff_engine.pool, "fire_schedules", lambda conn: fire_schedules(conn, 10))

    everywhere = await ff_engine.count_schedules()

    assert everywhere == {
        ScheduleState.ACTIVE: 3,
        ScheduleState.PAUSED: 1,
        ScheduleState.FINISHED: 1,
        ScheduleState.BROKEN: 1,
    }
    assert await ff_engine.count_schedules(namespace="shop") == nothing | {ScheduleState.ACTIVE: 1}
    with pytest.raises(ValidationError, match="namespace ''"):
        await ff_engine.count_schedules(namespace="")
