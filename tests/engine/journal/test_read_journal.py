"""A holder reads what was recorded, and the signals that no entry has consumed."""

from datetime import timedelta

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.entry import JournalEntry
from flowfabric.engine.journal.read_journal import InboxSignal, Journal, read_journal
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import JournalKind, JournalState
from flowfabric.testing import Clock
from tests import given
from tests.engine.journal.journals import BEGAN, DONE, SLEEP, entry, recorded, signalled


async def read(db: Connection, execution_id: ExecutionId) -> Journal:
    return (await read_journal(db, [execution_id]))[execution_id]


async def test_an_entry_is_read_as_it_was_written(db: Connection, clock: Clock) -> None:
    lease = await given.claimed(db)
    await record_entries(
        db,
        [
            entry(
                lease,
                1,
                "fetch",
                item="p",
                occurrence=1,
                due_at=BEGAN + timedelta(hours=1),
                fingerprint=2**31 + 5,
                signal_seq=9,
                tries=2,
                encoding="json",
                value=b"1",
            )
        ],
    )

    found = await read(db, lease.execution_id)

    assert found.entries == (
        JournalEntry(
            seq=1,
            kind=JournalKind.STEP,
            state=JournalState.DONE,
            name="fetch",
            item="p",
            occurrence=1,
            attempt_index=0,
            tries=2,
            started_at=BEGAN,
            recorded_at=instant(await clock.now_ms()),
            due_at=BEGAN + timedelta(hours=1),
            fingerprint=2**31 + 5,
            signal_seq=9,
            encoding="json",
            value=b"1",
        ),
    )
    assert found.entries[0].key == "fetch:p#1"
    assert (found.next_seq, found.generation, found.signal_seq) == (2, 0, 0)


async def test_the_entries_of_many_executions_come_in_order(db: Connection) -> None:
    leases = [await given.claimed(db) for _ in range(3)]
    for number, lease in enumerate(leases):
        await record_entries(
            db, [entry(lease, seq, f"{number}-{seq}") for seq in (11, 2, 1, 10, 3)]
        )
    unknown = ExecutionId.mint()

    found = await read_journal(db, [*(lease.execution_id for lease in leases), unknown])

    for number, lease in enumerate(leases):
        names = [each.name for each in found[lease.execution_id].entries]
        assert names == [f"{number}-{seq}" for seq in (1, 2, 3, 10, 11)]
        assert found[lease.execution_id].next_seq == 12
    assert found[unknown] == Journal()
    assert found[unknown].next_seq == 1
    assert await read_journal(db, []) == {}


async def test_an_execution_that_is_named_twice_is_read_once(db: Connection) -> None:
    lease = await given.claimed(db)
    await recorded(db, lease, "one")

    found = await read_journal(db, [lease.execution_id, lease.execution_id])

    assert [each.name for each in found[lease.execution_id].entries] == ["one"]


async def test_signals_come_in_order_without_those_that_an_entry_has_consumed(
    db: Connection, clock: Clock
) -> None:
    lease, other = await given.claimed(db), await given.claimed(db)
    ids = await signalled(db, lease.execution_id, "paid", "late", "paid")
    await signalled(db, other.execution_id, "late")
    await record_entries(
        db, [entry(lease, 1, "wait", kind=JournalKind.SIGNAL, state=DONE, signal_seq=1)]
    )

    found = await read_journal(db, [lease.execution_id, other.execution_id])

    accepted_at = instant(await clock.now_ms())
    assert found[lease.execution_id].signal_seq == 3
    assert found[lease.execution_id].signals == tuple(
        InboxSignal(
            signal_seq=seq,
            signal_id=ids[seq - 1],
            signal_name=name,
            source_type="user",
            source_identity="ann",
            correlation_id="",
            accepted_at=accepted_at,
            encoding="json",
            payload=f'"{name}"'.encode(),
        )
        for seq, name in ((2, "late"), (3, "paid"))
    )
    assert [each.signal_seq for each in found[other.execution_id].signals] == [1]


async def test_what_an_earlier_generation_consumed_is_not_read(db: Connection) -> None:
    lease = await given.claimed(db)
    await signalled(db, lease.execution_id, "paid", "late")
    await db.execute("UPDATE ff.signal_inbox SET consumed = true WHERE signal_seq = 1")

    found = await read(db, lease.execution_id)

    assert [each.signal_name for each in found.signals] == ["late"]
    assert found.signal_seq == 2


async def test_open_entries_are_read_with_their_due_time(db: Connection) -> None:
    lease = await given.claimed(db)
    await recorded(db, lease, "~nap?", due_at=BEGAN)

    [nap] = (await read(db, lease.execution_id)).entries

    assert (nap.kind, nap.state, nap.due_at) == (SLEEP, JournalState.OPEN, BEGAN)
