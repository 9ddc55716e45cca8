"""The lanes there are, and what is open on them."""

from datetime import timedelta

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lanes.count_by_lane import LaneCount, count_by_lane
from flowfabric.engine.lanes.list_lanes import LanePage, list_lanes
from flowfabric.engine.lanes.register_lanes import register_lanes
from flowfabric.engine.lanes.set_lane_retention import set_lane_retention
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.operators.block_execution_for_admission import block_execution_for_admission
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import ValidationError
from flowfabric.states import LaneState
from flowfabric.testing import Clock
from tests import given


async def test_there_are_no_lanes_at_first(db: Connection) -> None:
    assert await list_lanes(db) == LanePage(lanes=[], next_cursor=None)
    assert await count_by_lane(db) == []


async def test_lanes_come_in_the_order_of_their_names(db: Connection) -> None:
    await register_lanes(db, ["mail", "default", "reports"], registered_by="boot")

    assert await list_lanes(db) == LanePage(lanes=["default", "mail", "reports"], next_cursor=None)


async def test_a_lane_appears_with_its_first_execution(db: Connection) -> None:
    await given.created(db, lane_id="mail")

    assert (await list_lanes(db)).lanes == ["mail"]


async def test_pages_follow_one_another_without_gap_or_overlap(db: Connection) -> None:
    await register_lanes(db, [f"lane-{n}" for n in range(5)], registered_by="boot")
    pages, cursor = [], None
    while True:
        page = await list_lanes(db, cursor=cursor, limit=2)
        pages.append(page.lanes)
        cursor = page.next_cursor
        if cursor is None:
            break

    assert pages == [["lane-0", "lane-1"], ["lane-2", "lane-3"], ["lane-4"]]


async def test_a_full_last_page_has_no_cursor(db: Connection) -> None:
    await register_lanes(db, ["a", "b"], registered_by="boot")

    assert (await list_lanes(db, limit=2)).next_cursor is None
    assert (await list_lanes(db, limit=1)).next_cursor == "a"


async def test_any_text_may_be_a_cursor(db: Connection) -> None:
    await register_lanes(db, ["a", "c"], registered_by="boot")

    assert (await list_lanes(db, cursor="b")).lanes == ["c"]
    assert (await list_lanes(db, cursor="z")).lanes == []


async def test_a_page_of_nothing_is_empty(db: Connection) -> None:
    await register_lanes(db, ["a"], registered_by="boot")

    assert await list_lanes(db, limit=0) == LanePage(lanes=[], next_cursor=None)
    with pytest.raises(ValidationError, match="limit"):
        await list_lanes(db, limit=-1)


async def test_a_stored_lane_that_cannot_be_is_corruption(db: Connection) -> None:
    await db.execute("INSERT INTO ff.lane_registry VALUES ('größe', 0, 'a vandal')")

    with pytest.raises(ValidationError) as raised:
        await list_lanes(db)

    assert raised.value.code == "corruption"
    assert "lane_id" in raised.value.detail


async def test_what_is_open_on_a_lane_is_counted_by_state(db: Connection, clock: Clock) -> None:
    registered_at = await clock.now()
    await register_lanes(db, ["idle"], registered_by="boot")
    for kind in ("send", "send", "other"):
        await given.created(db, lane_id="mail", execution_kind=kind)
        await clock.advance(1)
    await given.created(db, lane_id="mail", delay=60)
    await given.created(db, lane_id="mail", delay=60)
    await given.created(db, lane_id="mail", namespace="acme")
    ended = await given.created(db, lane_id="mail")
    await cancel_execution(db, ended, reason="no")
    worker = Claimant(worker_id="w", worker_instance_id="w-1", lanes=("mail",))
    await claim(db, worker, ttl=30)

    idle, mail = await count_by_lane(db)

    assert idle == LaneCount(
        lane_id="idle",
        lane_state=LaneState.ACTIVE,
        state_changed_at=None,
        state_changed_by=None,
        state_reason=None,
        retention=None,
        registered_at=registered_at,
        waiting=0,
        delayed=0,
        active=0,
        suspended=0,
        waiting_children=0,
        rate_limited=0,
        blocked=0,
        oldest_waiting_since=None,
        left=0,
    )
    assert (mail.lane_id, mail.waiting, mail.delayed, mail.active) == ("mail", 3, 2, 1)
    assert mail.left == 6
    assert mail.oldest_waiting_since == registered_at + timedelta(seconds=1)


async def test_a_lane_whose_work_has_ended_counts_nothing(db: Connection) -> None:
    await cancel_execution(db, await given.created(db), reason="no")

    [lane] = await count_by_lane(db)

    assert (lane.waiting, lane.delayed, lane.active) == (0, 0, 0)
    assert lane.oldest_waiting_since is None


@pytest.mark.parametrize("state", LaneState)
async def test_a_lane_is_counted_with_its_state_and_who_set_it(
    db: Connection, clock: Clock, state: LaneState
) -> None:
    await given.created(db)
    await set_lane_retention(db, "default", 60)
    other = LaneState.PAUSED if state is LaneState.ACTIVE else LaneState.ACTIVE
    await set_lane_state(db, "default", other, actor="somebody", reason="before")
    await clock.advance(5)

    await set_lane_state(db, "default", state, actor="alice", reason="a deployment")

    [lane] = await count_by_lane(db)
    assert (lane.lane_state, lane.waiting) == (state, 1)
    assert (lane.state_changed_by, lane.state_reason) == ("alice", "a deployment")
    assert lane.state_changed_at == await clock.now()
    assert lane.retention == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("reason", "counted"),
    [
        ("waiting_for_budget", "rate_limited"),
        ("waiting_for_quota", "rate_limited"),
        ("waiting_for_capable_worker", "blocked"),
        ("paused_by_operator", "blocked"),
        ("paused_by_policy", "blocked"),
    ],
)
async def test_what_is_held_back_is_counted_once_and_not_as_waiting(
    db: Connection, reason: str, counted: str
) -> None:
    await block_execution_for_admission(db, await given.created(db), reason)

    [lane] = await count_by_lane(db)

    assert numbers(lane) == NOTHING | {counted: 1}


STANDINGS = {
    "suspended": "lifecycle_phase = 'suspended', eligibility_state = 'not_applicable',"
    " blocking_reason = 'waiting_for_signal', attempt_state = 'attempt_interrupted'",
    "waiting_children": "eligibility_state = 'blocked_by_dependencies',"
    " blocking_reason = 'waiting_for_children'",
    "waiting": "resume_pending = true",
}


@pytest.mark.parametrize("counted", STANDINGS)
async def test_what_is_suspended_depends_on_others_or_was_resumed_is_counted_once(
    db: Connection, counted: str
) -> None:
    await given.created(db)
    await db.execute(f"UPDATE ff.exec_core SET {STANDINGS[counted]}")
    if counted != "waiting":
        await db.execute("DELETE FROM ff.ready")

    [lane] = await count_by_lane(db)

    assert numbers(lane) == NOTHING | {counted: 1}


NOTHING = dict.fromkeys(
    ("waiting", "delayed", "active", "suspended", "waiting_children", "rate_limited", "blocked"), 0
)


def numbers(lane: LaneCount) -> dict[str, int]:
    """How many of each kind are open on the lane."""
    return {state: getattr(lane, state) for state in NOTHING}
