"""The signals in the inboxes of executions that no handler has consumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.journal.read_journal import InboxSignal
from flowfabric.ids import ExecutionId, id_columns
from flowfabric.instants import instant

# One statement: the number and the signals are of the same moment.
READ_INBOX: Final[LiteralString] = """
-- suspensions.read_inbox
SELECT named.partition_key, named.execution_id, e.signal_seq AS last_seq, i.signal_seq, i.signal_id,
       i.signal_name, i.payload, i.encoding, i.source_type, i.source_identity, i.correlation_id,
       i.accepted_at_ms
  FROM unnest(%(partition_key)s::smallint[], %(execution_id)s::uuid[])
       AS named (partition_key, execution_id)
 CROSS JOIN LATERAL (  -- by key, also if the plan is made while the tables are empty
       SELECT c.signal_seq FROM ff.exec_core c
        WHERE (c.partition_key, c.execution_id) = (named.partition_key, named.execution_id)
       OFFSET 0) AS e
  LEFT JOIN LATERAL (
       SELECT i.* FROM ff.signal_inbox i
        WHERE (i.partition_key, i.execution_id) = (named.partition_key, named.execution_id)
          AND NOT i.consumed
          AND NOT EXISTS (SELECT FROM ff.journal j
                           WHERE (j.partition_key, j.execution_id, j.signal_seq)
                               = (i.partition_key, i.execution_id, i.signal_seq))
       OFFSET 0) AS i ON e.signal_seq > 0
 ORDER BY named.partition_key, named.execution_id, i.signal_seq
"""


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    """The inbox of one execution: the number of its last signal, and those not consumed."""

    signal_seq: int
    signals: tuple[InboxSignal, ...] = ()


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    last_seq: int
    signal_seq: int | None
    signal_id: UUID
    signal_name: str
    payload: bytes | None
    encoding: str | None
    source_type: str
    source_identity: str
    correlation_id: str
    accepted_at_ms: int


async def read_inbox(
    conn: Connection, executions: Sequence[ExecutionId]
) -> dict[ExecutionId, Inbox]:
    """The inbox of each execution that exists, with its signals in the order of their arrival."""
    rows = await fetch_all(conn, READ_INBOX, _Row, **id_columns(list(dict.fromkeys(executions))))
    numbers: dict[ExecutionId, int] = {}
    signals: dict[ExecutionId, list[InboxSignal]] = {}
    for row in rows:
        each = ExecutionId(row.partition_key, row.execution_id)
        numbers[each] = row.last_seq
        found = signals.setdefault(each, [])
        if row.signal_seq is not None:
            found.append(_signal(row, row.signal_seq))
    return {
        each: Inbox(signal_seq=number, signals=tuple(signals[each]))
        for each, number in numbers.items()
    }


def _signal(row: _Row, signal_seq: int) -> InboxSignal:
    return InboxSignal(
        signal_seq=signal_seq,
        signal_id=row.signal_id,
        signal_name=row.signal_name,
        payload=row.payload,
        encoding=row.encoding,
        source_type=row.source_type,
        source_identity=row.source_identity,
        correlation_id=row.correlation_id,
        accepted_at=instant(row.accepted_at_ms),
    )
