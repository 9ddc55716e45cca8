"""Entries in transactions that see one snapshot: fenced as others, and no renewal breaks them."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import asyncpg
import pytest

from flowfabric.db.faults import SerializationConflict
from flowfabric.db.rows import Connection
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.journal.wait_for_entries import wait_for_entries
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.errors import StaleLease
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.journal.journals import entry, journal, lost
from tests.engine.journal.test_record_entry_in_sql import record

Record = Callable[[Connection, Lease], Awaitable[Any]]
RECORDS: dict[str, Record] = {
    "record_entries": lambda db, lease: record_entries(
        db, [entry(lease, 1, "save")], in_snapshot=True
    ),
    "ff.record_entry": lambda db, lease: record(db, lease),
}
each_record = pytest.mark.parametrize("recording", RECORDS.values(), ids=RECORDS)
Level = Literal["repeatable_read", "serializable"]
each_level = pytest.mark.parametrize("level", ["repeatable_read", "serializable"])
CONFLICTS = (SerializationConflict, asyncpg.SerializationError)


@asynccontextmanager
async def snapshot(conn: Connection, level: Level) -> AsyncGenerator[None]:
    """A transaction that has taken its snapshot."""
    async with conn.transaction(isolation=level):
        await conn.fetchval("SELECT count(*) FROM ff.lease")
        yield


@each_record
@each_level
async def test_a_renewal_since_the_snapshot_does_not_break_it(
    db: Connection, another: Another, recording: Record, level: Level
) -> None:
    lease = await given.claimed(db)
    writing = await another()

    async with snapshot(writing, level):
        await renew(db, [lease], ttl=60)
        await recording(writing, lease)
        await renew(db, [lease], ttl=90)

    assert await journal(db, lease.execution_id) == ["1 save done"]


@each_record
@each_level
async def test_an_end_waits_for_the_commit(
    db: Connection, another: Another, clock: Clock, recording: Record, level: Level
) -> None:
    lease = await given.claimed(db, ttl=30)
    writing, ending = await another(), await another()

    async def cancelled() -> None:
        async with ending.transaction():
            await cancel_execution(ending, lease.execution_id, reason="no")

    async with snapshot(writing, level):
        await recording(writing, lease)
        await clock.advance(31)
        assert await expire_leases(db, 10) == 0  # the sweep passes over it
        waiting = await given.blocked(db, ending, cancelled())
    await waiting

    assert await journal(db, lease.execution_id) == ["1 save done"]


@each_record
@each_level
async def test_a_lease_that_ended_since_the_snapshot_breaks_it(
    db: Connection, another: Another, clock: Clock, recording: Record, level: Level
) -> None:
    lease = await given.claimed(db)
    writing = await another()

    async def late() -> None:
        async with snapshot(writing, level):
            await lost(db, clock, lease)
            await recording(writing, lease)

    with pytest.raises(CONFLICTS):
        await late()
    assert await journal(db, lease.execution_id) == []


@each_level
async def test_a_lease_that_ended_before_is_refused(
    db: Connection, clock: Clock, level: Level
) -> None:
    lease = await given.claimed(db)
    await lost(db, clock, lease)

    async with snapshot(db, level):
        refused = await record_entries(db, [entry(lease, 1)], in_snapshot=True)

    assert isinstance(refused[lease], StaleLease)
    with pytest.raises(asyncpg.PostgresError, match="is not held"):
        async with snapshot(db, level):
            await record(db, lease)


@pytest.mark.parametrize("level", [None, "repeatable_read"])
async def test_a_holder_without_an_answer_can_wait_for_what_it_wrote(
    db: Connection, another: Another, level: Level | None
) -> None:
    lease = await given.claimed(db)
    writing, waiting = await another(), await another()
    async with writing.transaction(isolation=level):
        await record_entries(writing, [entry(lease, 1)], in_snapshot=level is not None)
        waited = await given.blocked(db, waiting, wait_for_entries(waiting, lease))

    assert await waited == lease
    assert await journal(db, lease.execution_id) == ["1 charge done"]
