"""The outbox of signals: one event for each signal that an execution accepted."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_one
from flowfabric.engine.events.cursor import encode_cursor
from flowfabric.engine.events.outbox import Entry, Event, Newest, Outbox, decoded_tags, entries
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import SignalEffect

READ: Final[LiteralString] = """
-- events.read_signal_events
SELECT s.event_id, s.partition_key, s.execution_id, s.signal_id, s.waitpoint_id, s.signal_name,
       s.effect, s.source_type, s.source_identity, r.namespace, r.lane_id, s.tags, s.occurred_at_ms
  FROM ff.signal_event s LEFT JOIN ff.route r USING (route_id)
 WHERE s.event_id > %(after)s AND s.event_id <= %(upto)s
 ORDER BY s.event_id LIMIT %(limit)s
"""

NEWEST: Final[LiteralString] = """
-- events.newest_signal_event
SELECT coalesce(max(event_id), 0) AS event_id FROM ff.signal_event
"""


class SignalEvent(Event, frozen=True, kw_only=True):
    """An execution accepted a signal; `waitpoint_id` is None for a signal that was sent by name."""

    execution_id: ExecutionId
    signal_id: UUID
    signal_name: str
    waitpoint_id: UUID | None
    effect: SignalEffect
    source_type: str
    source_identity: str
    lane_id: str | None


class _Row(msgspec.Struct, frozen=True):
    event_id: int
    partition_key: int
    execution_id: UUID
    signal_id: UUID
    waitpoint_id: UUID | None
    signal_name: str
    effect: str
    source_type: str
    source_identity: str
    namespace: str | None
    lane_id: str | None
    tags: str | None
    occurred_at_ms: int


async def read_signal_events(
    conn: Connection, after: int, upto: int, limit: int
) -> list[Entry[SignalEvent]]:
    """The first `limit` rows with after < event_id <= upto that are visible now."""
    rows = await fetch_all(conn, READ, _Row, after=after, upto=upto, limit=limit)
    return entries(rows, _event, outbox=SIGNALS.name)


async def newest_signal_event(conn: Connection) -> int:
    """The highest id that is visible now; 0 if there is none."""
    return (await fetch_one(conn, NEWEST, Newest)).event_id


def _event(row: _Row) -> SignalEvent:
    return SignalEvent(
        cursor=encode_cursor(row.event_id),
        event_id=row.event_id,
        execution_id=ExecutionId(row.partition_key, row.execution_id),
        signal_id=row.signal_id,
        signal_name=row.signal_name,
        waitpoint_id=row.waitpoint_id,
        effect=SignalEffect(row.effect),
        source_type=row.source_type,
        source_identity=row.source_identity,
        namespace=row.namespace,
        lane_id=row.lane_id,
        tags=decoded_tags(row.tags),
        at=instant(row.occurred_at_ms),
    )


SIGNALS: Final = Outbox(
    name="signal",
    topics=("signal",),
    hides_disconnects=False,
    read=read_signal_events,
    newest=newest_signal_event,
)
