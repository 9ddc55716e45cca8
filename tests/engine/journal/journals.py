"""Where tests of the journal begin: entries to write, what is stored, and signals in an inbox."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from flowfabric.db.rows import Connection
from flowfabric.engine.journal.compensation import CompensationCall
from flowfabric.engine.journal.entry import EntryWrite
from flowfabric.engine.journal.record_entries import record_entries
from flowfabric.engine.lifecycle.claim import claim
from flowfabric.engine.lifecycle.expire_leases import expire_leases
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.lock_executions import lock_executions
from flowfabric.engine.lifecycle.number_signals import number_signals
from flowfabric.ids import ExecutionId
from flowfabric.states import JournalKind, JournalState
from flowfabric.testing import Clock
from tests import given

BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
OPEN, DONE, FAILED = JournalState.OPEN, JournalState.DONE, JournalState.FAILED
STEP, SLEEP, COMPENSATION = JournalKind.STEP, JournalKind.SLEEP, JournalKind.COMPENSATION


def entry(lease: Lease, seq: int, name: str = "charge", **fields: Any) -> EntryWrite:
    """An entry to record: a step that is done, unless the fields say otherwise."""
    fields.setdefault("kind", STEP)
    fields.setdefault("state", DONE)
    fields.setdefault("started_at", BEGAN)
    return EntryWrite(lease=lease, seq=seq, name=name, **fields)


async def recorded(db: Connection, lease: Lease, *names: str, **fields: Any) -> None:
    """The execution has these entries, one after the other; `charge!` failed, `nap?` is open.

    `~` before a name makes it a sleep.
    """
    first = await db.fetchval(
        "SELECT coalesce(max(seq), 0) + 1 FROM ff.journal WHERE execution_id = $1",
        lease.execution_id.uuid,
    )
    writes = [
        entry(
            lease,
            seq,
            name.strip("~!?"),
            kind=SLEEP if name.startswith("~") else STEP,
            state=FAILED if name.endswith("!") else OPEN if name.endswith("?") else DONE,
            **fields,
        )
        for seq, name in enumerate(names, first)
    ]
    assert await record_entries(db, writes) == {}


async def rows(db: Connection, execution_id: ExecutionId) -> list[dict[str, Any]]:
    """The journal of an execution, as it is stored."""
    return [
        dict(row)
        for row in await db.fetch(
            "SELECT * FROM ff.journal WHERE (partition_key, execution_id) = ($1, $2) ORDER BY seq",
            execution_id.partition_key,
            execution_id.uuid,
        )
    ]


async def journal(db: Connection, execution_id: ExecutionId) -> list[str]:
    """The journal in short: `1 charge done`."""
    return [f"{row['seq']} {row['name']} {row['state']}" for row in await rows(db, execution_id)]


async def signalled(db: Connection, execution_id: ExecutionId, *names: str) -> list[UUID]:
    """Signals of these names are in the inbox, one after the other; their ids."""
    ids = [uuid4() for _ in names]
    async with db.transaction():
        await lock_executions(db, [execution_id])
        last = await number_signals(db, {execution_id: len(names)})
        first = last[execution_id] - len(names) + 1
        for seq, (name, signal_id) in enumerate(zip(names, ids, strict=True), first):
            await db.execute(
                "INSERT INTO ff.signal_inbox (partition_key, signal_seq, execution_id, signal_id,"
                " accepted_at_ms, signal_name, source_type, source_identity, encoding, payload)"
                " VALUES ($1, $2, $3, $4, ff.now_ms(), $5, 'user', 'ann', 'json', $6)",
                execution_id.partition_key,
                seq,
                execution_id.uuid,
                signal_id,
                name,
                f'"{name}"'.encode(),
            )
    return ids


async def claimed_again(db: Connection, execution_id: ExecutionId) -> Lease:
    """Worker w-2 holds the execution."""
    [claimed] = await claim(db, given.OTHER, ttl=30)
    assert claimed.lease.execution_id == execution_id
    return claimed.lease


async def lost(db: Connection, clock: Clock, lease: Lease) -> Lease:
    """The lease expires, and worker w-2 holds the execution; its lease."""
    await clock.advance(31)
    await expire_leases(db, 10)
    return await claimed_again(db, lease.execution_id)


def refund(payload: bytes = b'"c-1"') -> CompensationCall:
    """A call that undoes a charge."""
    return CompensationCall(execution_kind="refund", payload=payload, payload_encoding="json")
