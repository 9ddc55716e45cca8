"""Lanes that are configured exist."""

from collections.abc import Awaitable, Callable

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lanes.register_lanes import register_lanes
from flowfabric.errors import ValidationError
from flowfabric.testing import Clock
from tests import given

Another = Callable[[], Awaitable[Connection]]


async def test_a_lane_is_registered_with_who_and_when(db: Connection, clock: Clock) -> None:
    await register_lanes(db, ["mail"], registered_by="boot")

    [lane] = await db.fetch("SELECT * FROM ff.lane_registry")
    assert tuple(lane)[:4] == ("mail", await clock.now_ms(), "boot", "active")


async def test_a_lane_that_is_known_stays_as_it_is(db: Connection, clock: Clock) -> None:
    await given.created(db, lane_id="mail")
    before = await given.everything(db)
    await clock.advance(5)

    await register_lanes(db, ["mail", "mail"], registered_by="boot")

    assert await given.everything(db) == before


async def test_an_invalid_lane_registers_none(db: Connection) -> None:
    with pytest.raises(ValidationError, match="lane_id"):
        await register_lanes(db, ["fine", ""], registered_by="boot")

    assert await db.fetchval("SELECT count(*) FROM ff.lane_registry") == 0


async def test_no_lanes_is_nothing_to_do(db: Connection) -> None:
    await register_lanes(db, [], registered_by="boot")

    assert await db.fetchval("SELECT count(*) FROM ff.lane_registry") == 0


async def test_two_processes_may_register_at_once(db: Connection, another: Another) -> None:
    first, second = await another(), await another()
    async with first.transaction():
        await register_lanes(first, ["a", "b"], registered_by="first")
        waiting = await given.blocked(
            db, second, register_lanes(second, ["b", "a"], registered_by="second")
        )

    await waiting
    lanes = await db.fetch("SELECT lane_id, registered_by FROM ff.lane_registry ORDER BY 1")
    assert [tuple(lane) for lane in lanes] == [("a", "first"), ("b", "first")]
