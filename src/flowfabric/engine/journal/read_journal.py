"""The journals of executions, each with the signals of its inbox that no entry has consumed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.journal.entry import JournalEntry, read_fingerprint
from flowfabric.engine.journal.kept_entries import Mark
from flowfabric.engine.lifecycle.sql.by_key import execution_row
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.instants import instant
from flowfabric.states import JournalKind, JournalState

READ_JOURNAL: Final[LiteralString] = """
-- journal.read_journal
SELECT named.ordinal, j.seq, j.kind, j.state, j.name, j.item, j.occurrence, j.attempt_index,
       j.tries, j.started_at_ms, j.recorded_at_ms, j.due_at_ms, j.fingerprint, j.signal_seq,
       j.encoding, j.value
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[]) WITH ORDINALITY
       AS named (partition_key, execution_id, ordinal)
 CROSS JOIN LATERAL (  -- what is kept from before a restart has a negative number
       SELECT * FROM ff.journal j
        WHERE (j.partition_key, j.execution_id) = (named.partition_key, named.execution_id)
          AND j.seq >= 0
        ORDER BY j.seq) AS j
"""

READ_INBOX: Final[LiteralString] = f"""
-- journal.read_journal: the signals that no entry has consumed
SELECT named.ordinal, e.signal_seq AS last_seq, i.signal_seq, i.signal_id, i.signal_name,
       i.source_type, i.source_identity, i.correlation_id, i.accepted_at_ms, i.encoding, i.payload
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[]) WITH ORDINALITY
       AS named (partition_key, execution_id, ordinal)
  JOIN ff.exec_core e ON {execution_row("named.partition_key", "named.execution_id")}
  LEFT JOIN LATERAL (
       SELECT * FROM ff.signal_inbox i
        WHERE (i.partition_key, i.execution_id) = (named.partition_key, named.execution_id)
          AND e.signal_seq > 0 AND NOT i.consumed
          AND (named.ordinal, i.signal_seq) NOT IN (
                  SELECT * FROM unnest(%(consumer)s::bigint[], %(consumed)s::integer[]))
        ORDER BY i.signal_seq) AS i ON true
"""


class InboxSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was sent to an execution by name, and that no entry has consumed."""

    signal_seq: int
    signal_id: UUID
    signal_name: str
    source_type: str
    source_identity: str
    correlation_id: str
    accepted_at: datetime
    encoding: str | None
    payload: bytes | None


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """What the handler of an execution has done, and the signals that it can consume."""

    entries: tuple[JournalEntry, ...] = ()
    """In the order of `seq`, with the mark if there is one."""
    signals: tuple[InboxSignal, ...] = ()
    """In the order of their arrival."""
    signal_seq: int = 0
    """How many signals the inbox has received."""

    @property
    def next_seq(self) -> int:
        """The number of the entry that is written next."""
        return self.entries[-1].seq + 1 if self.entries else 1

    @property
    def generation(self) -> int:
        """How often the handler began with an empty journal again."""
        first = self.entries[0] if self.entries else None
        return 0 if first is None or first.seq > 0 else Mark.decode(first.value).generation


class _Entry(msgspec.Struct, frozen=True):
    ordinal: int
    seq: int
    kind: str
    state: str
    name: str
    item: str
    occurrence: int
    attempt_index: int
    tries: int
    started_at_ms: int
    recorded_at_ms: int
    due_at_ms: int | None
    fingerprint: int | None
    signal_seq: int | None
    encoding: str | None
    value: bytes | None


class _Signal(msgspec.Struct, frozen=True):
    ordinal: int
    last_seq: int
    signal_seq: int | None
    signal_id: UUID | None
    signal_name: str | None
    source_type: str | None
    source_identity: str | None
    correlation_id: str | None
    accepted_at_ms: int | None
    encoding: str | None
    payload: bytes | None


async def read_journal(
    conn: Connection, executions: Sequence[ExecutionId]
) -> dict[ExecutionId, Journal]:
    """The journal of each execution, which is empty if it has none or does not exist.

    For the holder of the execution, who alone writes its entries. It reads after its claim is
    committed: then every entry of those before it is there.
    """
    named = list(dict.fromkeys(executions))
    if not named:
        return {}
    columns = id_columns(named)
    entries: list[list[JournalEntry]] = [[] for _ in named]
    for row in await fetch_all(conn, READ_JOURNAL, _Entry, **columns):
        entries[row.ordinal - 1].append(_entry(row))
    consumed = [
        (number, entry.signal_seq)
        for number, some in enumerate(entries, 1)
        for entry in some
        if entry.signal_seq is not None
    ]
    signals: list[list[InboxSignal]] = [[] for _ in named]
    last = [0] * len(named)
    for row in await fetch_all(
        conn,
        READ_INBOX,
        _Signal,
        consumer=[number for number, _ in consumed],
        consumed=[seq for _, seq in consumed],
        **columns,
    ):
        last[row.ordinal - 1] = row.last_seq
        if row.signal_seq is not None:
            signals[row.ordinal - 1].append(_signal(row))
    return {
        each: Journal(entries=tuple(entries[at]), signals=tuple(signals[at]), signal_seq=last[at])
        for at, each in enumerate(named)
    }


def _entry(row: _Entry) -> JournalEntry:
    return JournalEntry(
        seq=row.seq,
        kind=JournalKind(row.kind),
        state=JournalState(row.state),
        name=row.name,
        item=row.item,
        occurrence=row.occurrence,
        attempt_index=row.attempt_index,
        tries=row.tries,
        started_at=instant(row.started_at_ms),
        recorded_at=instant(row.recorded_at_ms),
        due_at=instant(row.due_at_ms),
        fingerprint=read_fingerprint(row.fingerprint),
        signal_seq=row.signal_seq,
        encoding=row.encoding,
        value=row.value,
    )


def _signal(row: _Signal) -> InboxSignal:
    assert row.signal_seq is not None
    assert row.signal_id is not None
    assert row.accepted_at_ms is not None
    return InboxSignal(
        signal_seq=row.signal_seq,
        signal_id=row.signal_id,
        signal_name=row.signal_name or "",
        source_type=row.source_type or "",
        source_identity=row.source_identity or "",
        correlation_id=row.correlation_id or "",
        accepted_at=instant(row.accepted_at_ms),
        encoding=row.encoding,
        payload=row.payload,
    )
