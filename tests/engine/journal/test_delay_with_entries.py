"""Handlers that sleep: the lease is given up and the entries are recorded, both or neither."""

import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.delay_with_entries import Sleeper, delay_with_entries
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.errors import ExecutionNotActive, LeaseExpired, StaleLease, ValidationError
from flowfabric.testing import Clock
from tests import given
from tests.engine.journal.journals import DONE, OPEN, SLEEP, entry, journal, lost


def sleeper(lease: Lease, *names: str, seconds: float = 60) -> Sleeper:
    """A handler that has done these steps and sleeps now."""
    done = [entry(lease, seq, name, state=DONE) for seq, name in enumerate(names, 1)]
    nap = entry(lease, len(done) + 1, "nap", kind=SLEEP, state=OPEN)
    request = DelayRequest(lease=lease, delay=seconds, detail="sleeps in 'nap'")
    return Sleeper(request=request, entries=[*done, nap])


async def test_sleepers_are_delayed_and_their_entries_recorded(
    db: Connection, clock: Clock
) -> None:
    first, second = await given.claimed(db), await given.claimed(db)

    answers = await delay_with_entries(db, [sleeper(first), sleeper(second, "charge", seconds=90)])

    assert answers == [
        Delayed(execution_id=first.execution_id),
        Delayed(execution_id=second.execution_id),
    ]
    assert await journal(db, first.execution_id) == ["1 nap open"]
    assert await journal(db, second.execution_id) == ["1 charge done", "2 nap open"]
    row, now = await given.row(db, second.execution_id), await clock.now_ms()
    assert (row["public_state"], row["delay_until_ms"]) == ("delayed", now + 90_000)
    assert row["blocking_detail"] == "sleeps in 'nap'"


async def test_a_sleeper_without_new_entries(db: Connection) -> None:
    lease = await given.claimed(db)
    request = DelayRequest(lease=lease, delay=60)

    assert await delay_with_entries(db, [Sleeper(request=request)]) == [
        Delayed(execution_id=lease.execution_id)
    ]

    assert await journal(db, lease.execution_id) == []


async def test_under_a_refused_lease_nothing_is_recorded_and_the_others_sleep(
    db: Connection, clock: Clock
) -> None:
    old = await given.claimed(db)
    new = await lost(db, clock, old)
    other = await given.claimed(db)

    refused, delayed = await delay_with_entries(db, [sleeper(old), sleeper(other)])

    assert isinstance(refused, StaleLease)
    assert delayed == Delayed(execution_id=other.execution_id)
    assert await journal(db, old.execution_id) == []
    assert await journal(db, other.execution_id) == ["1 nap open"]
    assert (await given.row(db, new.execution_id))["public_state"] == "active"


async def test_a_lease_that_has_expired_is_refused(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(31)

    [refused] = await delay_with_entries(db, [sleeper(lease)])

    assert isinstance(refused, LeaseExpired)
    assert await journal(db, lease.execution_id) == []


async def test_a_repeated_call_finds_the_lease_given_up_and_changes_nothing(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    sleeps = [sleeper(lease, "charge")]
    await delay_with_entries(db, sleeps)
    before = await given.row(db, lease.execution_id)
    await clock.advance(1)

    [refused] = await delay_with_entries(db, sleeps)

    assert isinstance(refused, ExecutionNotActive)
    assert await given.row(db, lease.execution_id) == before
    assert await journal(db, lease.execution_id) == ["1 charge done", "2 nap open"]


async def test_entries_of_another_lease_are_refused(db: Connection) -> None:
    lease, other = await given.claimed(db), await given.claimed(db)

    with pytest.raises(ValidationError, match="lease of the delay"):
        Sleeper(request=DelayRequest(lease=lease, delay=60), entries=[entry(other, 1)])
