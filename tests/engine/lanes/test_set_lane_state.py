"""A lane is paused, drained, disabled or made active again."""

import asyncio
from typing import Any

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.engine import Engine
from flowfabric.engine.lanes.count_by_lane import LaneCount, count_by_lane
from flowfabric.engine.lanes.register_lanes import register_lanes
from flowfabric.engine.lanes.set_lane_state import LaneChanged, set_lane_state
from flowfabric.errors import NotFound, ValidationError
from flowfabric.states import LaneState
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.controls import NO_DATABASE, Action, Another, actions, bad_actors, waiting

CHANGES = [(old, new) for old in LaneState for new in LaneState if old is not new]


async def lane(db: Connection, lane_id: str = "mail") -> LaneCount:
    """The lane as it stands."""
    [found] = [one for one in await count_by_lane(db) if one.lane_id == lane_id]
    return found


async def registered(db: Connection, state: LaneState = LaneState.ACTIVE) -> None:
    """A lane in this state, about which nothing was told yet."""
    await register_lanes(db, ["mail", "other"], registered_by="boot")
    if state is not LaneState.ACTIVE:
        await set_lane_state(db, "mail", state, actor="somebody", reason="before")
        await db.execute("DELETE FROM ff.operator_event")


async def test_a_lane_is_active_at_first(db: Connection) -> None:
    await registered(db)

    found = await lane(db)
    assert found.lane_state is LaneState.ACTIVE
    assert (found.state_changed_at, found.state_changed_by, found.state_reason) == (None,) * 3


@pytest.mark.parametrize(("old", "new"), CHANGES)
async def test_a_lane_goes_from_any_state_into_any_other(
    db: Connection, clock: Clock, old: LaneState, new: LaneState
) -> None:
    await registered(db, old)
    await clock.advance(5)

    answer = await set_lane_state(db, "mail", new, actor="alice", reason="a deployment")

    assert answer == LaneChanged(lane_id="mail", lane_state=new, old_state=old)
    found = await lane(db)
    assert found.lane_state is new
    assert (found.state_changed_by, found.state_reason) == ("alice", "a deployment")
    assert found.state_changed_at == await clock.now()
    assert (await lane(db, "other")).lane_state is LaneState.ACTIVE


@pytest.mark.parametrize(("old", "new"), CHANGES)
async def test_one_event_tells_who_why_and_both_states(
    db: Connection, old: LaneState, new: LaneState
) -> None:
    await registered(db, old)

    await set_lane_state(db, "mail", new, actor="alice", reason="a deployment")

    assert await actions(db) == [
        Action(
            "lane_state_changed",
            "alice",
            "a deployment",
            {"lane_id": "mail", "old_state": old, "new_state": new},
        )
    ]


async def test_its_event_names_no_execution(db: Connection) -> None:
    await registered(db)

    await set_lane_state(db, "mail", "paused")

    [event] = await db.fetch("SELECT * FROM ff.operator_event")
    assert (event["execution_id"], event["flow_id"], event["route_id"]) == (None, None, None)


@pytest.mark.parametrize("state", LaneState)
async def test_the_state_that_it_has_is_kept_without_an_event(
    db: Connection, clock: Clock, state: LaneState
) -> None:
    await registered(db, state)
    await clock.advance(5)
    before = await given.everything(db)

    answer = await set_lane_state(db, "mail", state, actor="bob", reason="again")

    assert answer == LaneChanged(lane_id="mail", lane_state=state, old_state=state)
    assert await given.everything(db) == before


async def test_what_is_open_on_the_lane_stays_as_it_is(db: Connection, clock: Clock) -> None:
    await given.claimed(db, lane_id="default")
    await given.created(db)
    await given.created(db, delay=60)
    before = await db.fetch("SELECT * FROM ff.execution ORDER BY execution_id")

    await set_lane_state(db, "default", "disabled")

    assert await db.fetch("SELECT * FROM ff.execution ORDER BY execution_id") == before


async def test_a_lane_that_nobody_knows_has_no_state(db: Connection) -> None:
    with pytest.raises(NotFound) as raised:
        await set_lane_state(db, "mail", "paused")

    assert raised.value.entity == "lane"
    assert await count_by_lane(db) == []
    assert await actions(db) == []


@all_cases("state", ["", "Paused", "running", "paused ", "pause\x00d"])
async def test_what_is_no_state_is_refused_before_any_sql(state: str) -> None:
    with pytest.raises(ValidationError, match="lane_state") as raised:
        await set_lane_state(NO_DATABASE, "mail", state)

    assert raised.value.code == "invalid_input"


@all_cases("lane_id", ["", "größe", "a\tb", "a\x00", "x" * 65])
async def test_what_is_no_lane_is_refused_before_any_sql(lane_id: str) -> None:
    with pytest.raises(ValidationError, match="lane_id"):
        await set_lane_state(NO_DATABASE, lane_id, "paused")


@bad_actors
async def test_an_actor_that_cannot_be_stored_is_refused_before_any_sql(actor: str) -> None:
    with pytest.raises(ValidationError, match="actor"):
        await set_lane_state(NO_DATABASE, "mail", "paused", actor=actor)


async def test_any_reason_can_be_stored(db: Connection) -> None:
    await registered(db)

    await set_lane_state(db, "mail", "paused", reason="a\x00b" + "x" * 20_000)

    reason = (await lane(db)).state_reason
    assert reason is not None
    assert reason.startswith("a\N{REPLACEMENT CHARACTER}b")
    [told] = await actions(db)
    assert told.reason == reason


async def test_a_change_that_waited_for_another_tells_what_it_found(
    db: Connection, another: Another, ff_engine: Engine
) -> None:
    await registered(db)
    first = await another()
    async with first.transaction():
        await set_lane_state(first, "mail", "paused", actor="alice")
        changing = await waiting(db, ff_engine.set_lane_state("mail", "draining", actor="bob"))

    assert await changing == LaneChanged(
        lane_id="mail", lane_state=LaneState.DRAINING, old_state=LaneState.PAUSED
    )
    assert [(told.actor, told.details["old_state"]) for told in await actions(db)] == [
        ("alice", "active"),
        ("bob", "paused"),
    ]


async def test_of_many_equal_changes_at_once_one_is_told(db: Connection, ff_engine: Engine) -> None:
    await registered(db)

    answers = await asyncio.gather(
        *[ff_engine.set_lane_state("mail", "paused", actor=f"a{n}") for n in range(4)]
    )

    assert [answer.old_state for answer in answers].count(LaneState.ACTIVE) == 1
    assert len(await actions(db)) == 1


async def test_a_change_that_is_undone_is_told_to_nobody(db: Connection) -> None:
    await registered(db)
    before = await given.everything(db)
    undone: Any = db.transaction()
    await undone.start()
    await set_lane_state(db, "mail", "paused")

    await undone.rollback()

    assert await given.everything(db) == before
