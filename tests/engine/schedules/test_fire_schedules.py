"""Due instants are fired once each; what is skipped, missed or refused is in the ledger."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.executions.describe_execution import describe_execution
from flowfabric.engine.lanes.set_lane_state import set_lane_state
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.engine.schedules.fire_schedules import schedules_due
from flowfabric.engine.schedules.pause_schedule import pause_schedule
from flowfabric.engine.schedules.release_queued import release_queued, turns_due
from flowfabric.engine.schedules.update_schedule import update_schedule
from flowfabric.ids import ExecutionId
from flowfabric.instants import epoch_ms
from flowfabric.policy import ExecutionPolicy, RetryPolicy
from flowfabric.states import ScheduleOutcome, ScheduleOverlap, ScheduleState
from flowfabric.testing import Clock
from tests import given
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


async def test_an_instant_becomes_an_execution_with_everything_that_was_defined(
    db: Connection, clock: Clock
) -> None:
    await stored(
        db,
        clock,
        "digest",
        cron="0 2 * * *",
        tz="Europe/Berlin",
        execution_kind="mail",
        lane_id="mails",
        input_payload=b'{"to": "acme"}',
        payload_encoding="json",
        priority=7,
        tags={"shop.tenant": "acme"},
        required_capabilities=("smtp",),
        policy=ExecutionPolicy(retry_policy=RetryPolicy(max_retries=2)),
    )
    assert not await schedules_due(db)
    await clock.set(BEGIN + HOUR)
    assert await schedules_due(db)

    assert await fire(db) == 1

    [only] = await history(db, "digest")
    assert (only.outcome, only.fire_at) == (ScheduleOutcome.FIRED, BEGIN + HOUR)
    assert only.execution_id is not None
    made = await describe_execution(db, only.execution_id, with_body=True)
    assert made is not None
    assert made.body is not None
    assert made.body.payload == b'{"to": "acme"}'
    assert (made.execution_kind, made.lane_id, made.priority) == ("mail", "mails", 7)
    assert made.required_capabilities == ["smtp"]
    assert made.tags == {
        "shop.tenant": "acme",
        "ff.schedule": "digest",
        "ff.scheduled_at": "2027-01-05T01:00:00Z",
    }
    key = await db.fetchval("SELECT idempotency_key FROM ff.exec_body")
    assert key == "schedule:digest:2027-01-05T01:00:00Z"
    after = await again(db, "digest")
    assert (after.fired, after.last_fire_at) == (1, BEGIN + HOUR)
    assert after.next_fire_at == BEGIN + 25 * HOUR
    assert await fire(db) == 0


async def test_of_two_processes_that_look_at_once_one_fires(
    db: Connection, clock: Clock, another: Callable[[], Awaitable[Connection]]
) -> None:
    for number in range(20):
        await stored(db, clock, f"s{number}")
    await clock.advance(HOUR)
    others = [await another() for _ in range(3)]

    moved = await asyncio.gather(*(fire(conn) for conn in (db, *others)))

    assert sum(moved) == 20
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 20
    assert await db.fetchval("SELECT count(*) FROM ff.schedule_fire") == 20


async def test_a_schedule_that_changed_while_it_was_computed_is_passed_over(
    db: Connection, clock: Clock, another: Callable[[], Awaitable[Connection]]
) -> None:
    await stored(db, clock)
    await clock.advance(HOUR)
    other = await another()
    changing = other.transaction()
    await changing.start()
    await pause_schedule(other, "hourly", reason="not now")

    assert await fire(db) == 0

    await changing.commit()
    assert await fire(db) == 0
    assert await history(db) == []


async def test_before_its_commit_a_firing_has_not_happened(db: Connection, clock: Clock) -> None:
    await stored(db, clock)
    await clock.advance(HOUR)
    crash = db.transaction()
    await crash.start()
    await fire(db)
    await crash.rollback()
    assert await db.fetchval("SELECT count(*) FROM ff.exec_core") == 0

    assert await fire(db) == 1

    assert await outcomes(db) == ["1 fired"]


class Outage(msgspec.Struct, frozen=True):
    """A schedule that nobody fired for three hours, and what it had fired before."""

    overlap: ScheduleOverlap
    catch_up: int
    runs: bool
    """Has the execution of the hour before not ended?"""

    @property
    def name(self) -> str:
        return f"{self.overlap} {self.catch_up} {'runs' if self.runs else 'ended'}"

    def expected(self) -> tuple[list[str], list[str]]:
        """What becomes of hours 1 to 4, and where the executions that they fired are then."""
        words, states = ["fired"], ["waiting" if self.runs else "completed"]
        caught_up = min(self.catch_up, 3)
        words += ["missed"] * (3 - caught_up)
        for _ in range(caught_up):
            is_open = "waiting" in states
            match self.overlap:
                case ScheduleOverlap.SKIP if is_open:
                    words.append("skipped")
                    continue
                case ScheduleOverlap.QUEUE_ONE if "rate_limited" in states:
                    words.append("skipped")
                    continue
                case ScheduleOverlap.QUEUE_ONE | ScheduleOverlap.QUEUE_ALL if is_open:
                    states.append("rate_limited")
                case ScheduleOverlap.CANCEL_RUNNING:
                    states = ["cancelled" if each == "waiting" else each for each in states]
                    states.append("waiting")
                case _:
                    states.append("waiting")
            words.append("fired")
        return [f"{hour} {word}" for hour, word in enumerate(words, 1)], states


OUTAGES = [
    Outage(overlap, catch_up, runs)
    for overlap in ScheduleOverlap
    for catch_up in (0, 1, 2, 3, 5)
    for runs in (True, False)
]


async def test_after_an_outage_of_three_hours(db: Connection, clock: Clock) -> None:
    for each in OUTAGES:
        lane = "slow" if each.runs else "default"
        await stored(
            db, clock, each.name, overlap=each.overlap, catch_up=each.catch_up, lane_id=lane
        )
    await clock.set(BEGIN + HOUR)
    assert await fire(db) == len(OUTAGES)
    assert len(await end(db, 100)) == len(OUTAGES) / 2
    await clock.set(BEGIN + 4 * HOUR + timedelta(minutes=30))

    assert await fire(db) == len(OUTAGES)

    for each in OUTAGES:
        became, states = each.expected()
        assert await outcomes(db, each.name) == became, each.name
        fired = [one.execution_id for one in await history(db, each.name) if one.execution_id]
        assert [await given.public_state(db, one) for one in fired] == states, each.name
        words = Counter(one.split()[1] for one in became)
        schedule = await again(db, each.name)
        counts = (schedule.fired, schedule.skipped, schedule.missed)
        assert counts == (words["fired"], words["skipped"], words["missed"]), each.name
        assert schedule.next_fire_at == BEGIN + 5 * HOUR


async def test_the_ledger_names_the_execution_that_still_runs(db: Connection, clock: Clock) -> None:
    await stored(db, clock)
    for hour in (1, 2):
        await clock.set(BEGIN + hour * HOUR)
        await fire(db)

    first, skipped = await history(db)

    assert (skipped.outcome, skipped.execution_id) == (ScheduleOutcome.SKIPPED, None)
    assert skipped.reason == f"{first.execution_id} has not ended"


@pytest.mark.parametrize(("before", "outcome"), [(9, "skipped"), (10, "fired")])
async def test_only_the_last_ten_executions_of_a_schedule_count(
    before: int, outcome: str, db: Connection, clock: Clock
) -> None:
    await stored(db, clock, overlap="allow", lane_id="slow")
    await clock.set(BEGIN + HOUR)
    await fire(db)
    await update_schedule(db, define(overlap="allow"))
    for hour in range(2, before + 2):
        await clock.set(BEGIN + hour * HOUR)
        await fire(db)
        assert len(await end(db)) == 1
    await update_schedule(db, define(overlap="skip"))
    await clock.set(BEGIN + (before + 2) * HOUR)

    await fire(db)

    assert (await history(db))[-1].outcome == outcome
    assert len((await again(db)).latest) == 10, "a schedule that fires for years stays as small"


async def test_what_is_not_said_has_a_default(db: Connection, clock: Clock) -> None:
    made = (await stored(db, clock)).definition

    assert (made.overlap, made.catch_up) == (ScheduleOverlap.SKIP, 1)
    assert (made.catch_up_window, made.jitter) == (timedelta(days=1), timedelta())
    assert (made.spec.tz, made.starts, made.until, made.runs) == ("UTC", None, None, None)
    await clock.set(BEGIN + 25 * HOUR + timedelta(minutes=30))
    await update_schedule(db, define(catch_up=100, overlap="allow"))
    await db.execute("UPDATE ff.schedule SET next_fire_at_ms = $1", epoch_ms(BEGIN + HOUR))
    await fire(db)
    assert await outcomes(db) == ["1 missed", *(f"{hour} fired" for hour in range(2, 26))]


async def test_what_is_superseded_says_so(db: Connection, clock: Clock) -> None:
    await stored(db, clock, overlap="cancel_running")
    await clock.set(BEGIN + HOUR)
    await fire(db)
    held = await given.claim(db, given.WORKER, ttl=7200)
    await clock.set(BEGIN + 2 * HOUR)
    await fire(db)

    row = await given.row(db, held[0].lease.execution_id)

    assert (row["cancellation_reason"], row["cancelled_by"]) == (
        "superseded_by_schedule",
        "schedule",
    )
    assert row["leased"] is False


async def test_executions_that_queue_run_one_after_the_other(db: Connection, clock: Clock) -> None:
    await stored(db, clock, overlap="queue_all", catch_up=3)
    await clock.set(BEGIN + 3 * HOUR)
    await fire(db)
    ids = [each.execution_id for each in await history(db)]
    assert len(ids) == 3
    assert not await turns_due(db)

    ran: list[ExecutionId] = await end(db)
    for _ in range(2):
        assert await end(db) == []
        assert await turns_due(db)
        async with db.transaction():
            assert await release_queued(db, 10) == 1
        ran += await end(db)

    assert ran == ids
    assert not await turns_due(db)
    assert await db.fetchval("SELECT queued FROM ff.schedule") is False


async def test_one_that_was_cancelled_while_it_queued_is_passed_over(
    db: Connection, clock: Clock
) -> None:
    await stored(db, clock, overlap="queue_all", catch_up=3)
    await clock.set(BEGIN + 3 * HOUR)
    await fire(db)
    first, second, third = [each.execution_id for each in await history(db)]
    assert second is not None
    async with db.transaction():
        await cancel_execution(db, second, reason="not needed")
    assert await end(db) == [first]
    async with db.transaction():
        await release_queued(db, 10)

    assert await end(db) == [third]


async def test_an_instant_that_is_a_little_late_is_on_time(db: Connection, clock: Clock) -> None:
    await stored(db, clock, every=10, catch_up=0, overlap="allow")
    await clock.advance(timedelta(seconds=65))

    await fire(db)

    assert [each.outcome for each in await history(db)] == ["fired"] * 6
    assert (await again(db)).missed == 0


@pytest.mark.parametrize(("late_ms", "outcome"), [(60_000, "fired"), (60_001, "missed")])
async def test_an_instant_is_missed_once_it_is_more_than_a_minute_late(
    late_ms: int, outcome: str, db: Connection, clock: Clock
) -> None:
    await stored(db, clock, catch_up=0)
    await clock.set(BEGIN + HOUR + timedelta(milliseconds=late_ms))

    await fire(db)

    assert await outcomes(db) == [f"1 {outcome}"]


async def test_an_instant_that_is_older_than_the_window_is_not_caught_up(
    db: Connection, clock: Clock
) -> None:
    await stored(db, clock, catch_up=5, catch_up_window=1.5 * 3600, overlap="allow")
    await clock.set(BEGIN + 4 * HOUR + timedelta(minutes=10))

    await fire(db)

    assert await outcomes(db) == ["1 missed", "2 missed", "3 fired", "4 fired"]


async def test_a_long_outage_is_counted_in_slices_and_only_the_newest_are_listed(
    db: Connection, clock: Clock
) -> None:
    await stored(db, clock, every=60, catch_up=2, overlap="allow")
    await clock.advance(timedelta(minutes=2500, seconds=90))

    rounds = 0
    while await fire(db):
        rounds += 1

    assert rounds == 3
    schedule = await again(db)
    assert (schedule.missed, schedule.fired) == (2499, 2)
    found = await history(db)
    assert [each.outcome for each in found] == ["missed"] * 100 + ["fired"] * 2
    assert found[-1].fire_at == BEGIN + timedelta(minutes=2501)


async def test_a_lane_that_takes_nothing_refuses_the_instants_of_its_schedules_alone(
    db: Connection, clock: Clock
) -> None:
    await given.created(db, lane_id="closed")
    await set_lane_state(db, "closed", "draining")
    await stored(db, clock, "refused", lane_id="closed")
    await stored(db, clock, "hourly")
    await clock.advance(HOUR)

    assert await fire(db) == 2

    assert await outcomes(db) == ["1 fired"]
    [refused] = await history(db, "refused")
    assert (refused.outcome, refused.reason) == ("refused", "lane 'closed' is draining")
    assert (await again(db, "refused")).next_fire_at == BEGIN + 2 * HOUR


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("tz = 'Mars/Olympus'", "tz 'Mars/Olympus' is not the name of a time zone"),
        ("cron = 'MON#2/2 * * * *'", "Bad minute"),
        ("policy = '{\"max_replay_count\": -1}'", "corruption: schedule: policy"),
    ],
)
async def test_a_schedule_that_cannot_be_computed_is_broken_and_the_others_fire(
    db: Connection, clock: Clock, change: str, said: str
) -> None:
    await stored(db, clock, "odd", tz="Europe/Berlin", cron="0 * * * *")
    await stored(db, clock)
    await db.execute(f"UPDATE ff.schedule SET {change} WHERE name = 'odd'")
    await clock.advance(HOUR)

    assert await fire(db) == 2

    broken = await db.fetchrow("SELECT state, state_reason FROM ff.schedule WHERE name = 'odd'")
    assert broken is not None
    assert broken["state"] == ScheduleState.BROKEN
    assert said in broken["state_reason"]
    assert await outcomes(db) == ["1 fired"]
    assert await history(db, "odd") == []


async def test_a_schedule_ends_with_its_runs_or_its_time(db: Connection, clock: Clock) -> None:
    await stored(db, clock, "twice", runs=2, overlap="allow", catch_up=9)
    await stored(db, clock, "until", until=BEGIN + 2 * HOUR, overlap="allow", catch_up=9)
    await stored(db, clock, "once", at=BEGIN + HOUR)
    await clock.set(BEGIN + 4 * HOUR)

    assert await fire(db) == 3

    assert await outcomes(db, "twice") == ["1 fired", "2 fired"]
    assert await outcomes(db, "until") == ["1 fired", "2 fired"]
    assert await outcomes(db, "once") == ["1 fired"]
    for name in ("twice", "until", "once"):
        ended = await again(db, name)
        assert (ended.state, ended.next_fire_at) == (ScheduleState.FINISHED, None)


async def test_a_schedule_does_not_begin_before_its_start(db: Connection, clock: Clock) -> None:
    begins = await stored(db, clock, starts=BEGIN + 2 * HOUR)
    every = await stored(db, clock, "every", every=600, starts=BEGIN + 90 * timedelta(minutes=1))

    assert begins.next_fire_at == BEGIN + 2 * HOUR
    assert every.next_fire_at == BEGIN + timedelta(minutes=90)


async def test_jitter_delays_the_execution_and_not_the_instant(
    db: Connection, clock: Clock
) -> None:
    await stored(db, clock, jitter=600, overlap="allow")
    await clock.advance(HOUR)

    await fire(db)

    [only] = await history(db)
    assert only.fire_at == BEGIN + HOUR
    assert only.execution_id is not None
    row = await given.row(db, only.execution_id)
    assert 0 < row["delay_until_ms"] - await clock.now_ms() < 600_000
