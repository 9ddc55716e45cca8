"""An entry is in the journal of a held execution, as it was first written."""

from __future__ import annotations

from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_maybe
from flowfabric.engine.journal.entry import (
    EntryWrite,
    entry_key,
    read_fingerprint,
    stored_fingerprint,
)
from flowfabric.engine.lifecycle.lease import fence_columns
from flowfabric.engine.lifecycle.sql.fence import LOCKED, held_leases, read_seen, refusal
from flowfabric.errors import Refusal
from flowfabric.instants import epoch_ms
from flowfabric.states import JournalKind

BEGIN_ENTRY: Final[LiteralString] = (
    """
-- journal.begin_entry
"""
    + held_leases()
    + LOCKED
    + """, begun AS (
    INSERT INTO ff.journal (
           partition_key, seq, execution_id, attempt_index, occurrence, started_at_ms,
           recorded_at_ms, due_at_ms, fingerprint, signal_seq, tries, kind, state, name, item,
           encoding, value)
    SELECT partition_key, %(seq)s, execution_id, attempt_index, %(occurrence)s, %(started_at_ms)s,
           ff.now_ms(), %(due_at_ms)s, %(fingerprint)s, %(signal_seq)s, %(tries)s, %(kind)s,
           %(state)s, %(name)s, %(item)s, %(encoding)s, %(value)s
      FROM locked
        ON CONFLICT (partition_key, execution_id, seq) DO NOTHING
)
SELECT j.kind, j.name, j.item, j.occurrence, j.fingerprint
  FROM locked LEFT JOIN ff.journal j  -- what was there before
    ON j.partition_key = ANY (ARRAY[locked.partition_key])
   AND (j.execution_id, j.seq) = (locked.execution_id, %(seq)s)
"""
)


class BegunEntry(msgspec.Struct, frozen=True):
    """What the journal has at this place, and had before if the call was repeated."""

    kind: JournalKind
    key: str
    fingerprint: int | None


class _Found(msgspec.Struct, frozen=True):
    kind: str | None
    name: str | None
    item: str | None
    occurrence: int | None
    fingerprint: int | None


async def begin_entry(conn: Connection, write: EntryWrite) -> BegunEntry | Refusal:
    """The entry is recorded, unless its place is taken: then what is there stays as it is."""
    found = await fetch_maybe(
        conn,
        BEGIN_ENTRY,
        _Found,
        seq=write.seq,
        occurrence=write.occurrence,
        started_at_ms=epoch_ms(write.started_at),
        due_at_ms=None if write.due_at is None else epoch_ms(write.due_at),
        fingerprint=stored_fingerprint(write.fingerprint),
        signal_seq=write.signal_seq,
        tries=write.tries,
        kind=write.kind.value,
        state=write.state.value,
        name=write.name,
        item=write.item,
        encoding=write.encoding,
        value=write.value,
        **fence_columns([write.lease]),
    )
    if found is None:
        [seen] = await read_seen(conn, [write.lease])
        return refusal(write.lease, seen)
    if found.kind is None or found.name is None or found.occurrence is None:
        key = entry_key(write.name, write.item, write.occurrence)
        return BegunEntry(write.kind, key, write.fingerprint)
    key = entry_key(found.name, found.item or "", found.occurrence)
    return BegunEntry(JournalKind(found.kind), key, read_fingerprint(found.fingerprint))
