"""The signals that an execution was sent, the newest first, with what they did."""

from __future__ import annotations

from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.pages import check_limit
from flowfabric.states import SignalEffect

LIST_SIGNALS: Final[LiteralString] = """
-- suspensions.list_signals
SELECT s.event_id, s.signal_id, s.signal_name, s.waitpoint_id, s.effect, s.source_type,
       s.source_identity, s.occurred_at_ms, i.payload, i.encoding, i.consumed
  FROM ff.signal_event s
  LEFT JOIN ff.signal_inbox i      -- those by name have their payload there
    ON (i.partition_key, i.execution_id, i.signal_id)
     = (s.partition_key, s.execution_id, s.signal_id)
 WHERE s.execution_id = %(execution_id)s AND s.partition_key = %(partition_key)s
   AND s.event_id < %(before)s
 ORDER BY s.event_id DESC LIMIT %(limit)s
"""
_END: Final = 2**63 - 1


class SentSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal, what it did, and its payload if the inbox still has it."""

    event_id: int
    signal_id: UUID
    signal_name: str
    waitpoint_id: UUID | None
    effect: SignalEffect
    source_type: str
    source_identity: str
    at: datetime
    payload: bytes | None
    encoding: str | None
    consumed: bool | None
    """Has the handler received it? None for a signal to a waitpoint."""


class _Row(msgspec.Struct, frozen=True):
    event_id: int
    signal_id: UUID
    signal_name: str
    waitpoint_id: UUID | None
    effect: str
    source_type: str
    source_identity: str
    occurred_at_ms: int
    payload: bytes | None
    encoding: str | None
    consumed: bool | None


async def list_signals(
    conn: Connection, execution_id: ExecutionId, *, before: int = _END, limit: int = 100
) -> list[SentSignal]:
    """At most `limit` (1000) signals before the event `before`, the newest first."""
    check_limit(limit)
    rows = await fetch_all(
        conn,
        LIST_SIGNALS,
        _Row,
        partition_key=execution_id.partition_key,
        execution_id=execution_id.uuid,
        before=before,
        limit=limit,
    )
    return [
        SentSignal(
            event_id=row.event_id,
            signal_id=row.signal_id,
            signal_name=row.signal_name,
            waitpoint_id=row.waitpoint_id,
            effect=SignalEffect(row.effect),
            source_type=row.source_type,
            source_identity=row.source_identity,
            at=instant(row.occurred_at_ms),
            payload=row.payload,
            encoding=row.encoding,
            consumed=row.consumed,
        )
        for row in rows
    ]
