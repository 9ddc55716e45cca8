"""Operator events that no execution takes along end by age."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from flowfabric.db.rows import Connection
from flowfabric.engine.events.prune_actions import KEPT, prune_actions
from flowfabric.engine.lanes.register_lanes import register_lanes
from flowfabric.engine.lanes.set_lane_retention import set_lane_retention
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.operators.change_priority import change_priority
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another, actions

MONTH = 30 * 24 * 3600


async def told(db: Connection, clock: Clock, count: int) -> None:
    """So many actions on a lane, one a second."""
    await register_lanes(db, ["mail"], registered_by="boot")
    for n in range(count):
        await set_lane_retention(db, "mail", n + 1)
        await clock.advance(1)


async def left(db: Connection) -> list[int]:
    """Which of them are left."""
    return [action.details["new_retention_ms"] // 1000 for action in await actions(db)]


async def test_a_month_is_kept(db: Connection, clock: Clock) -> None:
    assert timedelta(seconds=MONTH) == KEPT
    await told(db, clock, 2)
    await clock.advance(MONTH - 2.001)
    assert await prune_actions(db, limit=10) == 0
    await clock.advance(0.001)

    assert await prune_actions(db, limit=10) == 1

    assert await left(db) == [2]


async def test_whatever_was_done_to_a_lane_is_forgotten_then(db: Connection, clock: Clock) -> None:
    await register_lanes(db, ["mail"], registered_by="boot")
    await set_lane_state(db, "mail", "paused")
    await set_lane_retention(db, "mail", 60)
    await clock.advance(MONTH)

    assert await prune_actions(db, limit=10) == 2

    assert await actions(db) == []


async def test_what_was_done_to_an_execution_stays_as_long_as_that(
    db: Connection, clock: Clock
) -> None:
    execution_id = await given.created(db)
    await change_priority(db, execution_id, 7)
    await clock.advance(12 * MONTH)
    before = await given.everything(db)

    assert await prune_actions(db, limit=10) == 0

    assert await given.everything(db) == before


async def test_a_sweep_keeps_to_its_limit_and_takes_the_oldest_first(
    db: Connection, clock: Clock
) -> None:
    await told(db, clock, 3)
    await clock.advance(MONTH)

    assert await prune_actions(db, limit=2) == 2
    assert await left(db) == [3]

    assert [await prune_actions(db, limit=2) for _ in range(2)] == [1, 0]


async def test_what_another_sweeper_forgets_is_passed_over(
    db: Connection, another: Another, clock: Clock
) -> None:
    await told(db, clock, 3)
    await clock.advance(MONTH)
    first = await another()
    async with first.transaction():
        assert await prune_actions(first, limit=2) == 2
        assert await prune_actions(db, limit=10) == 1

    assert await actions(db) == []


async def test_the_state_of_the_lane_stays(db: Connection, clock: Clock) -> None:
    await told(db, clock, 1)
    await clock.advance(MONTH)

    await prune_actions(db, limit=10)

    assert await db.fetchval("SELECT retention_ms FROM ff.lane_registry") == 1000


async def test_old_actions_are_swept(
    db: Connection, clock: Clock, ff_sweep: Callable[[], Awaitable[int]]
) -> None:
    await told(db, clock, 2)
    await clock.advance(MONTH)

    await ff_sweep()

    assert await actions(db) == []
