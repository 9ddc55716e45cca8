"""`ff.record_entry`: a step is recorded in the transaction of the caller, with any driver."""

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.read_journal import read_journal
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.operators.cancel_execution import cancel_execution
from flowfabric.instants import epoch_ms
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.journal.journals import BEGAN, DONE, OPEN, entry, journal, lost, rows

RECORD = """
SELECT ff.record_entry($1::smallint, $2::uuid, $3::integer, $4::bigint, $5::uuid, $6::integer, $7,
                       $8, $9::integer, $10::bigint, $11::bigint, $12, $13::bytea)
"""


async def record(db: Connection, lease: Lease, **fields: Any) -> bool:
    given_fields: dict[str, Any] = {
        "partition_key": lease.execution_id.partition_key,
        "execution_id": lease.execution_id.uuid,
        "attempt_index": lease.attempt_index,
        "lease_epoch": lease.lease_epoch,
        "lease_id": lease.lease_id,
        "seq": 1,
        "name": "save",
        "item": "",
        "occurrence": 0,
        "started_at_ms": None,
        "fingerprint": None,
        "encoding": None,
        "value": None,
    } | fields
    return await db.fetchval(RECORD, *given_fields.values())


async def test_it_records_what_record_entries_would(db: Connection, clock: Clock) -> None:
    first, second = await given.claimed(db), await given.claimed(db)
    await record_entries(
        db,
        [
            entry(
                first,
                1,
                "save",
                item="x",
                occurrence=2,
                fingerprint=2**32 - 3,
                encoding="json",
                value=b"1",
            )
        ],
    )

    assert await record(
        db,
        second,
        item="x",
        occurrence=2,
        started_at_ms=epoch_ms(BEGAN),
        fingerprint=2**32 - 3,
        encoding="json",
        value=b"1",
    )

    found = await read_journal(db, [first.execution_id, second.execution_id])
    assert found[first.execution_id] == found[second.execution_id]


async def test_name_and_lease_are_enough(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)

    assert await db.fetchval(
        "SELECT ff.record_entry($1::smallint, $2, $3, $4, $5, seq => 1, name => 'save')",
        lease.execution_id.partition_key,
        lease.execution_id.uuid,
        lease.attempt_index,
        lease.lease_epoch,
        lease.lease_id,
    )

    [row] = await rows(db, lease.execution_id)
    now = await clock.now_ms()
    assert (row["kind"], row["state"], row["started_at_ms"]) == ("step", "done", now)


async def test_a_repeated_call_changes_nothing_and_says_so(db: Connection) -> None:
    lease = await given.claimed(db)
    await record(db, lease, value=b"1")
    before = await rows(db, lease.execution_id)

    assert await record(db, lease, value=b"2") is False

    assert await rows(db, lease.execution_id) == before


async def test_an_open_entry_is_finished(db: Connection) -> None:
    lease = await given.claimed(db)
    await record_entries(db, [entry(lease, 1, "save", state=OPEN, due_at=BEGAN, tries=2)])

    assert await record(db, lease, value=b"1")

    [row] = await rows(db, lease.execution_id)
    assert (row["state"], row["value"], row["due_at_ms"]) == (DONE.value, b"1", None)


async def test_it_is_undone_with_the_transaction_of_the_caller(db: Connection) -> None:
    lease = await given.claimed(db)
    transaction = db.transaction()
    await transaction.start()
    await record(db, lease)

    await transaction.rollback()

    assert await journal(db, lease.execution_id) == []


@pytest.mark.parametrize(
    "changed", [{"attempt_index": 1}, {"lease_epoch": 7}, {"lease_id": uuid4()}, {"lease_id": None}]
)
async def test_a_lease_that_is_not_held_is_refused_with_a_state_of_its_own(
    db: Connection, changed: dict[str, Any]
) -> None:
    lease = await given.claimed(db)

    with pytest.raises(asyncpg.PostgresError) as refused:
        await record(db, lease, **changed)

    assert refused.value.sqlstate == "FF003"
    epoch = changed.get("lease_epoch", 1)
    assert str(refused.value) == (
        f"the lease of execution {lease.execution_id}, epoch {epoch}, is not held:"
        " 'save' is not recorded\nHINT:  Another worker may hold the execution now. Roll back, and"
        " stop working on it."
    )
    assert await journal(db, lease.execution_id) == []


async def test_a_lease_that_has_expired_is_refused(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(30)

    with pytest.raises(asyncpg.PostgresError, match="is not held"):
        await record(db, lease)


async def test_a_holder_that_lost_its_lease_meanwhile_is_refused(
    db: Connection, clock: Clock, another: Another
) -> None:
    lease = await given.claimed(db)
    writing, ending = await another(), await another()
    async with ending.transaction():
        await cancel_execution(ending, lease.execution_id, reason="no")
        recording = await given.blocked(db, writing, record(writing, lease))

    with pytest.raises(asyncpg.PostgresError, match="is not held"):
        await recording


async def test_the_end_of_the_lease_waits_for_the_transaction_of_the_caller(
    db: Connection, clock: Clock, another: Another
) -> None:
    lease = await given.claimed(db, ttl=30)
    writing, ending = await another(), await another()
    async with writing.transaction():
        await record(writing, lease)

        async def cancelled() -> None:
            async with ending.transaction():
                await cancel_execution(ending, lease.execution_id, reason="no")

        waiting = await given.blocked(db, ending, cancelled())
    await waiting

    assert await journal(db, lease.execution_id) == ["1 save done"]


async def test_a_zombie_is_refused_after_the_next_holder_has_read(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db)
    held = await lost(db, clock, lease)
    before = await read_journal(db, [held.execution_id])

    with pytest.raises(asyncpg.PostgresError, match="is not held"):
        await record(db, lease)

    assert await read_journal(db, [held.execution_id]) == before


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, 'name "" must be 1 to 128 printable bytes'),
        ({"name": None}, "name"),
        ({"name": "x" * 129}, "must be 1 to 128 printable bytes"),
        ({"name": "a\nb"}, r'name "a\nb" must be'),
        ({"item": "x" * 257}, "must be at most 256 bytes"),
        ({"item": None}, "item"),
        ({"seq": 0}, "seq 0 must be at least 1"),
        ({"seq": None}, "seq NULL must be at least 1"),
        ({"occurrence": -1}, "occurrence -1 must not be negative"),
        ({"fingerprint": -1}, "fingerprint -1 must be a crc32"),
        ({"fingerprint": 2**32}, "fingerprint 4294967296 must be a crc32"),
        ({"value": b"x" * (2**20 + 1)}, "value 1048577 bytes is over 1048576"),
    ],
)
async def test_bad_arguments_are_refused_by_name(
    db: Connection, fields: dict[str, Any], message: str
) -> None:
    lease = await given.claimed(db)

    with pytest.raises(asyncpg.InvalidParameterValueError) as refused:
        await record(db, lease, **fields)

    assert message in str(refused.value)
    assert await journal(db, lease.execution_id) == []
