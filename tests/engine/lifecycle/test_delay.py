"""active → runnable(delayed): the holder rests."""

from datetime import datetime, timedelta

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest, delay
from flowfabric.engine.lifecycle.promote_due import promote_due
from flowfabric.errors import ValidationError
from flowfabric.instants import instant
from flowfabric.testing import Clock
from tests import given

RESTING = "runnable/not_eligible_until_time/waiting_for_delay/none/attempt_interrupted → delayed"


async def test_a_resting_attempt_is_put_down_until_its_moment(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, deadline=3600)
    began = await clock.now_ms()
    await clock.advance(5)

    [answer] = await delay(db, [DelayRequest(lease=lease, delay=60)])

    assert answer == Delayed(execution_id=lease.execution_id)
    assert await given.standing(db, lease.execution_id) == RESTING
    stored, now = await given.row(db, lease.execution_id), await clock.now_ms()
    assert stored == stored | {
        "delay_until_ms": now + 60_000,
        "deadline_at_ms": began + 3_600_000,
        "attempt_index": 0,
        "total_attempt_count": 1,
        "retry_count": 0,
        "lease_reclaim_count": 0,
        "lease_epoch": lease.lease_epoch,
        "started_at_ms": began,
        "last_mutation_at_ms": now,
        "terminal_at_ms": None,
    }
    assert await given.lease_events(db, lease.execution_id) == [
        ("acquired", None),
        ("revoked", "delay"),
    ]
    assert await given.completion_events(db, lease.execution_id) == []
    [attempt] = await given.attempts(db, lease.execution_id)
    assert attempt == attempt | {
        "attempt_index": 0,
        "outcome": "interrupted",
        "started_at_ms": began,
        "ended_at_ms": now,
        "worker_instance_id": "w-1",
        "failure_reason": None,
    }


@pytest.mark.parametrize("seconds", [90, 0.001])
async def test_a_moment_or_a_while_is_the_same(
    db: Connection, clock: Clock, seconds: float
) -> None:
    leases = [await given.claimed(db) for _ in range(3)]
    now = await clock.now_ms()

    await delay(
        db,
        [
            DelayRequest(lease=leases[0], delay=seconds),
            DelayRequest(lease=leases[1], delay=timedelta(seconds=seconds)),
            DelayRequest(lease=leases[2], delay_until=instant(now + round(seconds * 1000))),
        ],
    )

    found = await db.fetch("SELECT DISTINCT delay_until_ms FROM ff.execution")
    assert [record[0] for record in found] == [now + round(seconds * 1000)]


async def test_a_moment_that_has_passed_parks_until_the_next_promotion(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    past = await clock.now() - timedelta(hours=1)

    await delay(db, [DelayRequest(lease=lease, delay_until=past)])

    assert await given.standing(db, lease.execution_id) == RESTING
    assert await claim(db, given.OTHER, ttl=30) == []
    assert await promote_due(db, limit=10) == 1
    assert len(await claim(db, given.OTHER, ttl=30)) == 1


async def test_a_rest_of_nothing_parks_too(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)

    await delay(db, [DelayRequest(lease=lease, delay=0)])

    assert await given.standing(db, lease.execution_id) == RESTING
    assert (await given.row(db, lease.execution_id))["delay_until_ms"] == await clock.now_ms()


async def test_each_of_a_batch_rests_for_its_own_time(db: Connection, clock: Clock) -> None:
    leases = [await given.claimed(db) for _ in range(4)]

    answers = await delay(
        db, [DelayRequest(lease=lease, delay=n + 1) for n, lease in enumerate(leases)]
    )

    now = await clock.now_ms()
    assert answers == [Delayed(execution_id=lease.execution_id) for lease in leases]
    for n, lease in enumerate(leases):
        stored = await given.row(db, lease.execution_id)
        assert stored["delay_until_ms"] == now + (n + 1) * 1000


async def test_a_rest_needs_one_moment(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)
    now = await clock.now()

    with pytest.raises(ValidationError, match="delay"):
        await delay(db, [DelayRequest(lease=lease, delay=1), DelayRequest(lease=lease)])
    with pytest.raises(ValidationError, match="delay"):
        await delay(db, [DelayRequest(lease=lease, delay=1, delay_until=now)])

    assert await given.everything(db) == before


async def test_a_moment_must_carry_a_time_zone(db: Connection) -> None:
    lease = await given.claimed(db)

    with pytest.raises(ValidationError, match="delay_until"):
        await delay(db, [DelayRequest(lease=lease, delay_until=datetime(2030, 1, 1))])


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e12, 1e17])
async def test_a_rest_must_end_within_the_calendar(db: Connection, seconds: float) -> None:
    lease = await given.claimed(db)
    before = await given.everything(db)

    with pytest.raises(ValidationError, match="invalid_input"):
        await delay(db, [DelayRequest(lease=lease, delay=seconds)])

    assert await given.everything(db) == before
