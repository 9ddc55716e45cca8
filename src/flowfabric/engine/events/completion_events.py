"""The outbox of completions: one event for each time that an execution ended."""

from __future__ import annotations

from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_one
from flowfabric.engine.events.cursor import encode_cursor
from flowfabric.engine.events.outbox import Entry, Event, Newest, Outbox, decoded_tags, entries
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import CompletionOutcome

READ: Final[LiteralString] = """
-- events.read_completions
SELECT c.event_id, c.partition_key, c.execution_id, c.outcome, c.flow_id, r.namespace, r.lane_id,
       r.execution_kind, c.tags, c.occurred_at_ms
  FROM ff.completion_event c LEFT JOIN ff.route r USING (route_id)
 WHERE c.event_id > %(after)s AND c.event_id <= %(upto)s
 ORDER BY c.event_id LIMIT %(limit)s
"""

NEWEST: Final[LiteralString] = """
-- events.newest_completion
SELECT coalesce(max(event_id), 0) AS event_id FROM ff.completion_event
"""


class CompletionEvent(Event, frozen=True, kw_only=True):
    """An execution ended or, with the outcome `resumable`, can go on after a suspension."""

    execution_id: ExecutionId
    outcome: CompletionOutcome
    flow_id: UUID | None
    lane_id: str | None
    execution_kind: str | None


class _Row(msgspec.Struct, frozen=True):
    event_id: int
    partition_key: int
    execution_id: UUID
    outcome: str
    flow_id: UUID | None
    namespace: str | None
    lane_id: str | None
    execution_kind: str | None
    tags: str | None
    occurred_at_ms: int


async def read_completions(
    conn: Connection, after: int, upto: int, limit: int
) -> list[Entry[CompletionEvent]]:
    """The first `limit` rows with after < event_id <= upto that are visible now."""
    rows = await fetch_all(conn, READ, _Row, after=after, upto=upto, limit=limit)
    return entries(rows, _event, outbox=COMPLETIONS.name)


async def newest_completion(conn: Connection) -> int:
    """The highest id that is visible now; 0 if there is none."""
    return (await fetch_one(conn, NEWEST, Newest)).event_id


def _event(row: _Row) -> CompletionEvent:
    return CompletionEvent(
        cursor=encode_cursor(row.event_id),
        event_id=row.event_id,
        execution_id=ExecutionId(row.partition_key, row.execution_id),
        outcome=CompletionOutcome(row.outcome),
        flow_id=row.flow_id,
        namespace=row.namespace,
        lane_id=row.lane_id,
        execution_kind=row.execution_kind,
        tags=decoded_tags(row.tags),
        at=instant(row.occurred_at_ms),
    )


COMPLETIONS: Final = Outbox(
    name="completion",
    topics=("completion",),
    hides_disconnects=True,
    read=read_completions,
    newest=newest_completion,
)
