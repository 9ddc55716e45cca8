"""For how long a lane keeps what has ended."""

from datetime import timedelta
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lanes.count_by_lane import count_by_lane
from flowfabric.engine.lanes.register_lanes import register_lanes
from flowfabric.engine.lanes.set_lane_retention import KEEP, set_lane_retention
from flowfabric.errors import NotFound, ValidationError
from tests import given
from tests.engine.controls import NO_DATABASE, Action, Another, actions, bad_actors, waiting


async def retention(db: Connection, lane_id: str = "mail") -> timedelta | None:
    [found] = [one for one in await count_by_lane(db) if one.lane_id == lane_id]
    return found.retention


@pytest.fixture(autouse=True)
async def lanes(db: Connection) -> None:
    """Two lanes that say nothing."""
    await register_lanes(db, ["mail", "other"], registered_by="boot")


async def test_a_lane_says_nothing_at_first(db: Connection) -> None:
    assert await retention(db) is None


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (60, timedelta(minutes=1)),
        (0.001, timedelta(milliseconds=1)),
        (timedelta(days=7), timedelta(days=7)),
        (KEEP, timedelta(0)),
        (None, None),
    ],
)
async def test_a_lane_keeps_what_it_is_told(
    db: Connection, wanted: float | timedelta | None, expected: timedelta | None
) -> None:
    await set_lane_retention(db, "mail", 5)

    await set_lane_retention(db, "mail", wanted)

    assert await retention(db) == expected
    assert await retention(db, "other") is None


async def test_one_event_tells_who_and_both_times(db: Connection) -> None:
    await set_lane_retention(db, "mail", 60, actor="alice")
    await set_lane_retention(db, "mail", None, actor="bob")

    assert await actions(db) == [
        Action(
            "lane_retention_changed",
            "alice",
            None,
            {"lane_id": "mail", "old_retention_ms": None, "new_retention_ms": 60_000},
        ),
        Action(
            "lane_retention_changed",
            "bob",
            None,
            {"lane_id": "mail", "old_retention_ms": 60_000, "new_retention_ms": None},
        ),
    ]


async def test_a_lane_that_nobody_knows_keeps_nothing(db: Connection) -> None:
    before = await given.everything(db)

    with pytest.raises(NotFound) as raised:
        await set_lane_retention(db, "unknown", 60)

    assert raised.value.entity == "lane"
    assert await given.everything(db) == before


@pytest.mark.parametrize(
    "wanted",
    [-0.001, -1, float("inf"), float("nan"), 200 * 365 * 24 * 3600, timedelta(days=-1)],
)
async def test_a_time_that_cannot_be_kept_is_refused_before_any_sql(wanted: Any) -> None:
    with pytest.raises(ValidationError, match="retention") as raised:
        await set_lane_retention(NO_DATABASE, "mail", wanted)

    assert raised.value.code == "invalid_input"


@pytest.mark.parametrize("lane_id", ["", "größe", "x" * 65])
async def test_what_is_no_lane_is_refused_before_any_sql(lane_id: str) -> None:
    with pytest.raises(ValidationError, match="lane_id"):
        await set_lane_retention(NO_DATABASE, lane_id, 60)


@bad_actors
async def test_an_actor_that_cannot_be_stored_is_refused_before_any_sql(actor: str) -> None:
    with pytest.raises(ValidationError, match="actor"):
        await set_lane_retention(NO_DATABASE, "mail", 60, actor=actor)


async def test_a_change_that_waited_for_another_tells_what_it_found(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    first = await another()
    async with first.transaction():
        await set_lane_retention(first, "mail", 60)
        changing = await waiting(db, ff_engine.set_lane_retention("mail", 120))
    await changing

    assert await retention(db) == timedelta(minutes=2)
    assert [told.details["old_retention_ms"] for told in await actions(db)] == [None, 60_000]
