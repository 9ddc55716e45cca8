"""Entries are recorded by the holders of leases, and finished ones never change."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from flowfabric.db.rows import Connection
from flowfabric.db.steps import current_step
from flowfabric.engine.journal.read_journal import read_journal
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.errors import ExecutionNotActive, LeaseExpired, NotFound, StaleLease
from flowfabric.ids import ExecutionId
from flowfabric.instants import epoch_ms
from flowfabric.states import JournalKind
from flowfabric.testing import Clock
from tests import given
from tests.engine.controls import Another
from tests.engine.journal.journals import (
    BEGAN,
    DONE,
    FAILED,
    OPEN,
    SLEEP,
    entry,
    journal,
    lost,
    recorded,
    rows,
)


async def test_an_entry_is_stored_as_it_is_given(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    write = entry(
        lease,
        1,
        "fetch",
        item="page-1",
        occurrence=2,
        due_at=BEGAN + timedelta(days=3),
        fingerprint=2**32 - 1,
        signal_seq=4,
        tries=3,
        encoding="json",
        value=b'{"ok":true}',
    )

    assert await record_entries(db, [write]) == {}

    [row] = await rows(db, lease.execution_id)
    assert row == {
        "partition_key": lease.execution_id.partition_key,
        "execution_id": lease.execution_id.uuid,
        "seq": 1,
        "attempt_index": 0,
        "occurrence": 2,
        "started_at_ms": epoch_ms(BEGAN),
        "recorded_at_ms": await clock.now_ms(),
        "due_at_ms": epoch_ms(BEGAN) + 3 * 86_400_000,
        "fingerprint": -1,
        "signal_seq": 4,
        "tries": 3,
        "kind": "step",
        "state": "done",
        "name": "fetch",
        "item": "page-1",
        "encoding": "json",
        "value": b'{"ok":true}',
    }


async def test_what_is_not_given_has_its_default(db: Connection) -> None:
    lease = await given.claimed(db)

    await record_entries(db, [entry(lease, 1)])

    [row] = await rows(db, lease.execution_id)
    assert row == row | {
        "occurrence": 0,
        "tries": 1,
        "item": "",
        "due_at_ms": None,
        "fingerprint": None,
        "signal_seq": None,
        "encoding": None,
        "value": None,
    }


async def test_many_entries_of_many_executions_are_one_statement(db: Connection) -> None:
    leases = [await given.claimed(db) for _ in range(5)]
    seen: list[str] = []

    async def step(conn: object, name: str) -> None:
        seen.append(name)

    token = current_step.set(step)
    try:
        refused = await record_entries(
            db, [entry(lease, seq, f"s{seq}") for seq in (2, 1, 3) for lease in leases]
        )
    finally:
        current_step.reset(token)

    assert (refused, seen) == ({}, ["journal.record_entries"])
    for lease in leases:
        assert await journal(db, lease.execution_id) == ["1 s1 done", "2 s2 done", "3 s3 done"]


async def test_no_entries_are_no_statement() -> None:
    no_database: Any = None

    assert await record_entries(no_database, []) == {}


async def test_the_same_entries_again_change_nothing(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    writes = [entry(lease, 1, value=b"1"), entry(lease, 2, "nap", kind=SLEEP, state=OPEN)]
    await record_entries(db, writes)
    before = await rows(db, lease.execution_id)

    await record_entries(db, writes)

    assert await rows(db, lease.execution_id) == before


@pytest.mark.parametrize("finished", [DONE, FAILED])
@pytest.mark.parametrize("later", [OPEN, DONE, FAILED])
async def test_an_entry_that_is_finished_never_changes(
    db: Connection, clock: Clock, finished: Any, later: Any
) -> None:
    lease = await given.claimed(db)
    await record_entries(db, [entry(lease, 1, state=finished, value=b"first", encoding="json")])
    before = await rows(db, lease.execution_id)
    await clock.advance(1)

    refused = await record_entries(db, [entry(lease, 1, state=later, value=b"other", tries=2)])

    assert refused == {}
    assert await rows(db, lease.execution_id) == before


async def test_an_open_entry_is_finished_under_its_own_key(db: Connection, clock: Clock) -> None:
    first = await given.claimed(db)
    await record_entries(
        db,
        [entry(first, 1, "pay", item="x", state=OPEN, due_at=BEGAN, fingerprint=7, tries=1)],
    )
    [before] = await rows(db, first.execution_id)
    second = await lost(db, clock, first)

    await record_entries(
        db,
        [entry(second, 1, "pay", item="x", tries=3, signal_seq=2, encoding="json", value=b"1")],
    )

    [row] = await rows(db, first.execution_id)
    assert row == before | {
        "state": "done",
        "attempt_index": second.attempt_index,
        "recorded_at_ms": await clock.now_ms(),
        "due_at_ms": None,
        "tries": 3,
        "signal_seq": 2,
        "encoding": "json",
        "value": b"1",
    }


async def test_of_one_place_in_one_call_the_last_counts_unless_it_was_finished(
    db: Connection,
) -> None:
    lease = await given.claimed(db)

    await record_entries(
        db,
        [
            entry(lease, 1, state=OPEN),
            entry(lease, 1, value=b"done"),
            entry(lease, 1, state=OPEN, value=b"late"),
            entry(lease, 2, state=OPEN, tries=1),
            entry(lease, 2, state=OPEN, tries=2),
        ],
    )

    first, second = await rows(db, lease.execution_id)
    assert (first["state"], first["value"]) == ("done", b"done")
    assert (second["state"], second["tries"]) == ("open", 2)


async def test_every_kind_and_state_can_be_stored(db: Connection) -> None:
    lease = await given.claimed(db)
    kinds = list(JournalKind)

    await record_entries(db, [entry(lease, seq, kind=kind) for seq, kind in enumerate(kinds, 1)])

    found = (await read_journal(db, [lease.execution_id]))[lease.execution_id]
    assert [each.kind for each in found.entries] == kinds


# The fence.


async def test_nothing_is_recorded_under_a_lease_that_is_not_held(
    db: Connection, clock: Clock
) -> None:
    ended = await given.claimed(db)
    await complete(db, [Completion(ended)])
    stale = await given.claimed(db)
    held = await lost(db, clock, stale)
    good = await given.claimed(db)
    missing = Lease(ExecutionId.mint(), 0, 1, uuid4())
    before = await given.everything(db)

    refused = await record_entries(db, [entry(each, 1) for each in (stale, ended, missing)])

    assert {lease: type(why) for lease, why in refused.items()} == {
        stale: StaleLease,
        ended: ExecutionNotActive,
        missing: NotFound,
    }
    assert await given.everything(db) == before
    refused = await record_entries(db, [entry(each, 1) for each in (good, stale, held, missing)])
    assert set(refused) == {stale, missing}
    assert await journal(db, good.execution_id) == ["1 charge done"]
    assert await journal(db, held.execution_id) == ["1 charge done"]


async def test_a_lease_that_has_expired_is_refused_also_before_the_sweep(
    db: Connection, clock: Clock
) -> None:
    lease = await given.claimed(db, ttl=30)
    await clock.advance(30)

    refused = await record_entries(db, [entry(lease, 1)])

    assert isinstance(refused[lease], LeaseExpired)
    assert await journal(db, lease.execution_id) == []


@pytest.mark.parametrize(
    "changed",
    [{"attempt_index": 1}, {"lease_epoch": 2}, {"lease_id": uuid4()}, {"lease_epoch": 2**70}],
)
async def test_every_part_of_the_lease_counts(db: Connection, changed: dict[str, Any]) -> None:
    lease = await given.claimed(db)
    other = msgspec.structs.replace(lease, **changed)

    refused = await record_entries(db, [entry(other, 1), entry(lease, 2)])

    assert set(refused) == {other}
    assert await journal(db, lease.execution_id) == ["2 charge done"]


async def test_an_execution_that_was_released_and_claimed_again_refuses_its_first_holder(
    db: Connection, clock: Clock
) -> None:
    first = await given.claimed(db)
    await recorded(db, first, "one")
    second = await lost(db, clock, first)

    refused = await record_entries(db, [entry(first, 2, "zombie"), entry(second, 2, "two")])

    assert set(refused) == {first}
    assert await journal(db, first.execution_id) == ["1 one done", "2 two done"]


async def test_a_renewal_does_not_wait_for_a_flush_nor_a_flush_for_a_renewal(
    db: Connection, another: Another
) -> None:
    lease = await given.claimed(db)
    other = await another()
    async with db.transaction():
        await record_entries(db, [entry(lease, 1)])
        await renew(other, [lease], ttl=60)
    async with other.transaction():
        await renew(other, [lease], ttl=90)
        assert await record_entries(db, [entry(lease, 2)]) == {}

    assert len(await rows(db, lease.execution_id)) == 2
