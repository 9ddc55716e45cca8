"""Schedules are created, changed, paused, triggered, backfilled and deleted; each with an event."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.schedules.backfill_schedule import backfill_schedule
from flowfabric.engine.schedules.create_schedule import create_schedule
from flowfabric.engine.schedules.definition import ScheduleDefinition
from flowfabric.engine.schedules.delete_schedule import delete_schedule
from flowfabric.engine.schedules.diff_schedules import diff_schedules
from flowfabric.engine.schedules.explain_schedule import explain_schedule
from flowfabric.engine.schedules.get_schedule import get_schedule
from flowfabric.engine.schedules.list_schedule_fires import list_schedule_fires
from flowfabric.engine.schedules.list_schedules import list_schedules
from flowfabric.engine.schedules.pause_schedule import pause_schedule
from flowfabric.engine.schedules.preview_schedule import preview_schedule
from flowfabric.engine.schedules.prune_schedule_fires import prune_schedule_fires
from flowfabric.engine.schedules.release_queued import release_queued
from flowfabric.engine.schedules.resume_schedule import resume_schedule
from flowfabric.engine.schedules.sync_schedules import sync_schedules
from flowfabric.engine.schedules.trigger_schedule import trigger_schedule
from flowfabric.engine.schedules.update_schedule import update_schedule
from flowfabric.errors import (
    FlowFabricError,
    LaneNotAccepting,
    NotFound,
    ScheduleAlreadyExists,
    ScheduleChanged,
    ScheduleFinished,
    ValidationError,
)
from flowfabric.policy import ExecutionPolicy
from flowfabric.schedules.spec import spec_of
from flowfabric.states import PublicState, ScheduleOverlap, ScheduleSource, ScheduleState
from flowfabric.testing import Clock
from tests import given
from tests.all_cases import all_cases
from tests.engine.schedules.stored import (
    BEGIN,
    HOUR,
    again,
    define,
    end,
    fire,
    history,
    outcomes,
    stored,
)


async def events(db: Connection) -> list[str]:
    rows = await db.fetch("SELECT event_type FROM ff.operator_event ORDER BY event_id")
    return [row["event_type"].removeprefix("schedule_") for row in rows]


async def rows(db: Connection) -> int:
    return await db.fetchval("SELECT count(*) FROM ff.schedule")


@all_cases(
    ("fields", "said"),
    [
        ({"name": ""}, "name '' must not be empty"),
        ({"name": "a\nb"}, "must not contain control or invisible characters"),
        ({"name": "n" * 257}, "must be at most 256 bytes"),
        ({"overlap": "sometimes"}, "overlap 'sometimes' is not one of allow, skip"),
        ({"catch_up": -1}, "catch_up -1 must be a whole number from 0 to 1000"),
        ({"catch_up": True}, "catch_up True must be a whole number"),
        ({"catch_up_window": -1}, "catch_up_window -1 must not be negative"),
        ({"jitter": "1m"}, "jitter '1m' must be a number of seconds"),
        ({"starts": datetime(2027, 1, 1)}, "starts '2027-01-01T00:00:00' must have a time zone"),
        ({"until": datetime(2027, 1, 1)}, "until '2027-01-01T00:00:00' must have a time zone"),
        ({"runs": 0}, "runs 0 must be a whole number from 1"),
        ({"lane_id": ""}, "lane_id '' must not be empty"),
        ({"tags": {"ff.schedule": "x"}}, "tag 'ff.schedule' is set by the schedule"),
        ({"tags": {"Bad": "x"}}, "tag key 'Bad' must look like area.name"),
        ({"input_payload": b"x" * (1024 * 1024 + 1)}, "'1048577 bytes' is over 1048576"),
        ({"spec": "0 * * * *"}, "must be of type ScheduleSpec, not str"),
    ],
)
def test_a_definition_that_cannot_be_is_named(fields: dict[str, Any], said: str) -> None:
    values = {"name": "s", "spec": spec_of(every=60), "execution_kind": "job", **fields}
    with pytest.raises(ValidationError) as refused:
        ScheduleDefinition(**values)

    assert said in refused.value.detail


async def test_a_schedule_that_would_never_fire_is_not_created(
    db: Connection, clock: Clock
) -> None:
    await clock.set(BEGIN)
    for fields, said in (
        ({"at": BEGIN}, "at '2027-01-05T00:00:00+00:00' is in the past"),
        ({"until": BEGIN}, "until '2027-01-05T00:00:00+00:00' leaves no instant"),
    ):
        with pytest.raises(ValidationError) as refused:
            await create_schedule(db, define("hourly", **fields))
        assert said in refused.value.detail

    assert (await rows(db), await events(db)) == (0, [])


async def test_what_is_created_can_be_read_back(db: Connection, clock: Clock) -> None:
    given_ = define(
        "full",
        every=900,
        starts=BEGIN + HOUR,
        until=BEGIN + 9 * HOUR,
        runs=3,
        overlap="queue_one",
        catch_up=4,
        catch_up_window=3600,
        jitter=30,
        tags={"a.b": "c"},
        required_capabilities=["gpu", "big"],
        policy=ExecutionPolicy(max_reclaim_count=2),
        input_payload=b"\x00\xff",
        source=ScheduleSource.CODE,
    )
    await clock.set(BEGIN)

    made = await create_schedule(db, given_, actor="ann")

    assert made.definition == given_
    assert made == await get_schedule(db, "full")
    assert (made.created_by, made.runs_left, made.state) == ("ann", 3, ScheduleState.ACTIVE)
    assert made.next_fire_at == BEGIN + HOUR
    assert await create_schedule(db, given_) == made, "the same again changes nothing"
    assert await events(db) == ["created"]


async def test_another_definition_needs_an_update(db: Connection, clock: Clock) -> None:
    await stored(db, clock)

    with pytest.raises(ScheduleAlreadyExists) as refused:
        await create_schedule(db, define(catch_up=7, lane_id="other"))

    assert refused.value.differs == ["lane_id", "catch_up"]
    assert (await again(db)).definition.catch_up == 1


async def test_an_update_counts_from_now_and_never_fires_backwards(
    db: Connection, clock: Clock
) -> None:
    before = await stored(db, clock)
    await clock.set(BEGIN + 3 * HOUR + timedelta(minutes=10))

    after = await update_schedule(db, define(cron="30 * * * *"), actor="ann")

    assert after.next_fire_at == BEGIN + 3.5 * HOUR
    assert await fire(db) == 0
    assert await events(db) == ["created", "updated"]
    details = await db.fetchval(
        "SELECT details->>'changes' FROM ff.operator_event WHERE event_type = 'schedule_updated'"
    )
    assert "cron: 0 * * * * → 30 * * * *" in details
    with pytest.raises(ScheduleChanged):
        await update_schedule(db, define(), revision=before.revision)
    with pytest.raises(NotFound, match="schedule other"):
        await update_schedule(db, define("other"))


async def test_an_interval_keeps_its_rhythm_when_something_else_changes(
    db: Connection, clock: Clock
) -> None:
    await stored(db, clock, every=600)
    await clock.set(BEGIN + timedelta(minutes=14))

    same = await update_schedule(db, define(every=600, catch_up=3))
    other = await update_schedule(db, define(every=300, catch_up=3))

    assert same.next_fire_at == BEGIN + timedelta(minutes=20)
    assert other.next_fire_at == BEGIN + timedelta(minutes=19)


async def test_a_pause_misses_nothing(db: Connection, clock: Clock) -> None:
    await stored(db, clock, catch_up=9, overlap="allow")
    paused = await pause_schedule(db, "hourly", reason="repairs", actor="ann")
    assert (paused.state_by, paused.state_reason) == ("ann", "repairs")
    assert (await pause_schedule(db, "hourly", actor="bob")).state_by == "ann"
    await clock.set(BEGIN + 3.5 * HOUR)
    assert await fire(db) == 0

    resumed = await resume_schedule(db, "hourly")

    assert (resumed.state, resumed.next_fire_at) == (ScheduleState.ACTIVE, BEGIN + 4 * HOUR)
    assert (resumed.state_by, resumed.state_reason) == (None, None)
    await resume_schedule(db, "hourly")
    await fire(db)
    assert await outcomes(db) == []
    assert await events(db) == ["created", "paused", "resumed"]


async def test_a_pause_can_be_treated_as_an_outage(db: Connection, clock: Clock) -> None:
    await stored(db, clock, catch_up=2, overlap="allow")
    await pause_schedule(db, "hourly")
    await clock.set(BEGIN + 3.5 * HOUR)

    await resume_schedule(db, "hourly", catch_up=True)
    await fire(db)

    assert await outcomes(db) == ["1 missed", "2 fired", "3 fired"]


async def test_a_pause_survives_a_new_definition(db: Connection, clock: Clock) -> None:
    await stored(db, clock)
    await pause_schedule(db, "hourly", reason="repairs")

    updated = await update_schedule(db, define(catch_up=5))

    assert (updated.state, updated.state_reason) == (ScheduleState.PAUSED, "repairs")


async def test_what_is_finished_needs_another_definition(db: Connection, clock: Clock) -> None:
    await stored(db, clock, at=BEGIN + HOUR)
    await clock.set(BEGIN + HOUR)
    await fire(db)

    for control in (pause_schedule, resume_schedule):
        with pytest.raises(ScheduleFinished):
            await control(db, "hourly")
    assert (await update_schedule(db, define())).state is ScheduleState.ACTIVE


async def test_what_is_broken_is_resumed_once_it_can_be_computed(
    db: Connection, clock: Clock
) -> None:
    await stored(db, clock, cron="0 * * * *", tz="Europe/Berlin")
    await db.execute("UPDATE ff.schedule SET tz = 'Mars/Olympus'")
    await clock.advance(HOUR)
    await fire(db)

    explained = await explain_schedule(db, "hourly")
    assert "broken: invalid_input: tz 'Mars/Olympus'" in explained.summary
    with pytest.raises(ValidationError, match="Mars/Olympus"):
        await resume_schedule(db, "hourly")
    await db.execute("UPDATE ff.schedule SET tz = 'UTC'")

    assert (await resume_schedule(db, "hourly")).next_fire_at == BEGIN + 2 * HOUR


async def test_a_trigger_fires_now_and_obeys_the_overlap(db: Connection, clock: Clock) -> None:
    await stored(db, clock)
    own = uuid4()

    first = await trigger_schedule(db, "hourly", trigger_id=own, actor="ann")
    second = await trigger_schedule(db, "hourly")
    forced = await trigger_schedule(db, "hourly", force=True)

    assert first.outcome == forced.outcome == "triggered"
    assert first.execution_id is not None
    assert (second.outcome, second.reason) == ("skipped", f"{first.execution_id} has not ended")
    assert await trigger_schedule(db, "hourly", trigger_id=own) == first
    assert sorted(await outcomes(db)) == ["0 skipped", "0 triggered", "0 triggered"]
    assert await events(db) == ["created", *["triggered"] * 3]
    after = await again(db)
    assert (after.next_fire_at, after.fired) == (BEGIN + HOUR, 0)
    await clock.advance(HOUR)
    await fire(db)
    assert (await history(db))[-1].outcome == "skipped", "it is one of the last executions"


async def test_a_trigger_obeys_every_overlap_unless_it_is_forced(
    db: Connection, clock: Clock
) -> None:
    expected = {
        "allow": ("triggered", ["waiting", "waiting"]),
        "skip": ("skipped", ["waiting"]),
        "queue_one": ("triggered", ["waiting", "rate_limited"]),
        "queue_all": ("triggered", ["waiting", "rate_limited"]),
        "cancel_running": ("triggered", ["cancelled", "waiting"]),
    }
    for overlap in expected:
        await stored(db, clock, overlap, overlap=overlap)
        await trigger_schedule(db, overlap)

    for overlap, (outcome, states) in expected.items():
        assert (await trigger_schedule(db, overlap)).outcome == outcome, overlap
        assert await _states(db, overlap) == states
        assert (await trigger_schedule(db, overlap, force=True)).outcome == "triggered"
        assert await _states(db, overlap) == [*states, "waiting"], overlap
    await end(db, 100)
    skipped = await trigger_schedule(db, "queue_one")
    assert skipped.reason is not None
    assert skipped.reason.endswith("waits for its turn already")


async def _states(db: Connection, name: str) -> list[PublicState]:
    """Of its last executions, the oldest first."""
    return [await given.public_state(db, each) for each in (await again(db, name)).latest]


async def test_a_trigger_that_cannot_be_is_refused(db: Connection, clock: Clock) -> None:
    await stored(db, clock, lane_id="closed")
    await given.created(db, lane_id="closed")
    await set_lane_state(db, "closed", "disabled")

    with pytest.raises(LaneNotAccepting):
        async with db.transaction():
            await trigger_schedule(db, "hourly")
    with pytest.raises(NotFound, match="schedule nightly does not exist"):
        await trigger_schedule(db, "nightly")
    assert await history(db) == []


async def test_a_backfill_fires_what_was_not(db: Connection, clock: Clock) -> None:
    await stored(db, clock, catch_up=1)
    await clock.set(BEGIN + 4.5 * HOUR)
    await fire(db)
    assert await outcomes(db) == ["1 missed", "2 missed", "3 missed", "4 fired"]

    made = await backfill_schedule(db, "hourly", BEGIN + HOUR, BEGIN + 4 * HOUR)
    repeated = await backfill_schedule(db, "hourly", BEGIN - 2 * HOUR, BEGIN + 4.2 * HOUR)

    assert len(made.executions) == 3
    assert (len(repeated.executions), repeated.already_fired) == (3, 4)
    assert await outcomes(db) == [
        *(f"{hour} backfilled" for hour in range(-2, 4)),
        "4 fired",
    ]
    assert [await given.public_state(db, each) for each in made.executions] == ["waiting"] * 3
    tags = await db.fetchval(
        "SELECT tags->>'ff.scheduled_at' FROM ff.exec_core WHERE execution_id = $1",
        made.executions[0].uuid,
    )
    assert tags == "2027-01-05T01:00:00Z"
    assert await events(db) == ["created", "backfilled", "backfilled"]


async def test_what_a_backfill_has_fired_is_not_fired_again_when_it_is_caught_up(
    db: Connection, clock: Clock
) -> None:
    for overlap in ScheduleOverlap:
        await stored(db, clock, overlap, overlap=overlap, catch_up=2)
    await clock.set(BEGIN + 3.2 * HOUR)
    made = {
        each: (await backfill_schedule(db, each, BEGIN + 2 * HOUR, BEGIN + 3.1 * HOUR)).executions
        for each in ScheduleOverlap
    }

    await fire(db)

    for overlap, executions in made.items():
        assert await outcomes(db, overlap) == ["1 missed", "2 backfilled", "3 backfilled"], overlap
        states = [await given.public_state(db, each) for each in executions]
        assert states == ["waiting"] * 2, overlap
        schedule = await again(db, overlap)
        assert (schedule.fired, schedule.missed) == (2, 1), overlap
        assert schedule.next_fire_at == BEGIN + 4 * HOUR


async def test_a_backfill_forgets_none_that_waits_for_its_turn(
    db: Connection, clock: Clock
) -> None:
    await stored(db, clock, overlap="queue_all")
    for hour in (1, 2):
        await clock.set(BEGIN + hour * HOUR)
        await fire(db)
    waits = (await history(db))[-1].execution_id
    assert waits is not None
    await backfill_schedule(db, "hourly", BEGIN - 12 * HOUR, BEGIN)  # more than are remembered

    while await end(db, 50):
        async with db.transaction():
            await release_queued(db, 10)

    assert await given.public_state(db, waits) == "completed"


@pytest.mark.parametrize(
    ("start", "end_", "said"),
    [
        (BEGIN, BEGIN + 9 * HOUR, "end '2027-01-05T09:00:00+00:00' must not be in the future"),
        (BEGIN.replace(tzinfo=None), BEGIN, "start '2027-01-05T00:00:00' must have a time zone"),
        (BEGIN, BEGIN - HOUR, "end '2027-01-04T23:00:00+00:00' must not be before start"),
        (BEGIN.replace(year=2020), BEGIN, "start '2020-01-05T00:00:00+00:00' has more than 10000"),
    ],
)
async def test_a_backfill_that_cannot_be_is_refused(
    db: Connection, clock: Clock, start: datetime, end_: datetime, said: str
) -> None:
    await stored(db, clock)

    with pytest.raises(ValidationError) as refused:
        await backfill_schedule(db, "hourly", start, end_)

    assert said in refused.value.detail
    assert await events(db) == ["created"]


async def test_deleting_leaves_the_executions(db: Connection, clock: Clock) -> None:
    await stored(db, clock, overlap="queue_all", catch_up=3)
    await clock.set(BEGIN + 3 * HOUR)
    await fire(db)
    ids = [each.execution_id for each in await history(db)]

    await delete_schedule(db, "hourly", actor="ann")

    assert (await rows(db), await history(db)) == (0, [])
    assert sorted(await end(db)) == sorted(each for each in ids if each is not None)
    with pytest.raises(NotFound):
        await delete_schedule(db, "hourly")
    assert await events(db) == ["created", "deleted"]


async def test_lists_previews_and_history(db: Connection, clock: Clock) -> None:
    for name in ("a", "b", "c"):
        await stored(db, clock, name, runs=2 if name == "b" else None)
    await pause_schedule(db, "c")

    first = await list_schedules(db, limit=2)
    rest = await list_schedules(db, cursor=first.next_cursor)

    assert [each.name for each in first.schedules] == ["a", "b"]
    assert ([each.name for each in rest.schedules], rest.next_cursor) == (["c"], None)
    assert [each.name for each in (await list_schedules(db, state="paused")).schedules] == ["c"]
    assert (await list_schedules(db, namespace="other")).schedules == []
    assert await preview_schedule(db, "a", 2) == [BEGIN + HOUR, BEGIN + 2 * HOUR]
    assert len(await preview_schedule(db, "b", 9)) == 2, "as many as it has runs"
    await clock.advance(5 * HOUR)
    assert await preview_schedule(db, "c", 1) == [BEGIN + 6 * HOUR]
    await fire(db)
    [newest] = await list_schedule_fires(db, "a", limit=1)
    [before] = await list_schedule_fires(db, "a", before=newest.fire_at, limit=1)
    assert (newest.fire_at, before.fire_at) == (BEGIN + 5 * HOUR, BEGIN + 4 * HOUR)
    for bad in (
        list_schedules(db, state="asleep"),
        list_schedules(db, limit=0),
        preview_schedule(db, "a", 0),
        list_schedule_fires(db, "a", before=datetime(2027, 1, 1)),
    ):
        with pytest.raises(ValidationError):
            await bad


async def test_a_schedule_of_another_namespace_does_not_exist(db: Connection, clock: Clock) -> None:
    await stored(db, clock, namespace="shop")

    with pytest.raises(NotFound):
        await get_schedule(db, "hourly")
    assert (await get_schedule(db, "hourly", namespace="shop")).name == "hourly"


async def test_sync_creates_changes_and_prunes(db: Connection, clock: Clock) -> None:
    def code(name: str, **fields: Any) -> ScheduleDefinition:
        return define(name, source=ScheduleSource.CODE, **fields)

    for name in ("same", "changed", "orphan"):
        await stored(db, clock, name, source=ScheduleSource.CODE)
    await stored(db, clock, "by-hand")
    await pause_schedule(db, "changed")
    wanted = [code("same"), code("changed", cron="5 * * * *", jitter=60), code("new")]

    found = await diff_schedules(db, wanted)

    assert (found.missing, found.orphans) == (["new"], ["orphan"])
    assert [(each.name, [str(one) for one in each.changes]) for each in found.changed] == [
        ("changed", ["cron: 0 * * * * → 5 * * * *", "jitter: 0:00:00 → 0:01:00"])
    ]
    await sync_schedules(db, wanted, missing_only=True)
    assert (await again(db, "changed")).definition.spec.cron == "0 * * * *"
    assert (await again(db, "new")).next_fire_at == BEGIN + HOUR
    assert await sync_schedules(db, wanted) == msgspec.structs.replace(found, missing=[])
    assert (await again(db, "changed")).state is ScheduleState.PAUSED
    assert (await diff_schedules(db, wanted)).orphans == ["orphan"]
    await sync_schedules(db, wanted, prune=True)
    assert (await diff_schedules(db, wanted)).is_empty
    assert await rows(db) == 4


async def test_old_and_surplus_rows_of_the_ledger_are_deleted(db: Connection, clock: Clock) -> None:
    await stored(db, clock, every=60)
    await stored(db, clock, "daily", cron="@daily")
    await db.execute(
        "INSERT INTO ff.schedule_fire (partition_key, namespace, name, fire_at_ms, outcome,"
        " recorded_at_ms) SELECT partition_key, namespace, name, n, 'missed', ff.now_ms()"
        " FROM ff.schedule, generate_series(1, 1005) AS n WHERE name = 'hourly' OR n <= 3"
    )
    await db.execute("UPDATE ff.schedule SET fired = 1005 WHERE name = 'hourly'")
    assert await prune_schedule_fires(db, 3) == 3
    assert await prune_schedule_fires(db, 3) == 2
    assert await prune_schedule_fires(db, 3) == 0
    assert await db.fetchval("SELECT min(fire_at_ms) FROM ff.schedule_fire") == 1
    kept = "SELECT count(*), min(fire_at_ms) FROM ff.schedule_fire WHERE name = 'hourly'"
    assert tuple(await db.fetchrow(kept) or ()) == (1000, 6)
    await clock.advance(timedelta(days=31))

    while await prune_schedule_fires(db, 500):
        pass

    assert await db.fetchval("SELECT count(*) FROM ff.schedule_fire") == 0


async def test_an_explanation_says_what_is_next_and_what_is_in_the_way(
    db: Connection, clock: Clock
) -> None:
    await stored(db, clock, cron="0 * * * *", tz="Europe/Berlin", lane_id="slow")
    explained = await explain_schedule(db, "hourly")
    assert explained.summary == "fires next at 2027-01-05 01:00:00 UTC"
    assert f"{explained.upcoming[0].local:%H:%M %Z}" == "02:00 CET"
    assert explained.reasons[0].remedy == "but something is in its way"
    assert "no live worker can run kind 'job' on lane 'slow'" in explained.reasons[1].message

    await clock.advance(HOUR)
    assert "due since" not in (await explain_schedule(db, "hourly")).summary
    await clock.advance(60)
    late = await explain_schedule(db, "hourly")
    assert late.summary == "due since 2027-01-05 01:00:00 UTC, and not fired yet"
    assert "no worker process runs" in late.reasons[0].remedy
    await fire(db)
    await clock.advance(HOUR)
    await fire(db)
    await set_lane_state(db, "slow", "paused", actor="bob")
    await pause_schedule(db, "hourly", reason="repairs", actor="ann")
    explained = await explain_schedule(db, "hourly")

    said = " | ".join(reason.message for reason in explained.reasons)
    assert "paused by ann since 2027-01-05 02:01:00 UTC: repairs" in explained.summary
    assert "lane 'slow' is paused by bob: it starts nothing" in said
    assert "its last instant, 2027-01-05 02:00:00 UTC, was skipped" in said
    assert f"1 of its executions has not ended: {explained.running[0]}" in said
    assert await given.public_state(db, explained.running[0]) is PublicState.WAITING
    with pytest.raises(FlowFabricError):
        await explain_schedule(db, "nightly")
