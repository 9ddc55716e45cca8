"""The outbox of operators: what operators did to executions, flows, lanes and keys."""

from __future__ import annotations

from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all, fetch_one
from flowfabric.engine.events.cursor import encode_cursor
from flowfabric.engine.events.outbox import (
    Entry,
    Event,
    Newest,
    Outbox,
    decoded_details,
    decoded_tags,
    entries,
)
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.states import OperatorEventType

READ: Final[LiteralString] = """
-- events.read_operator_events
SELECT o.event_id, o.partition_key, o.execution_id, o.flow_id, o.event_type, o.actor, o.reason,
       o.details, r.namespace, o.tags, o.occurred_at_ms
  FROM ff.operator_event o LEFT JOIN ff.route r USING (route_id)
 WHERE o.event_id > %(after)s AND o.event_id <= %(upto)s
 ORDER BY o.event_id LIMIT %(limit)s
"""

NEWEST: Final[LiteralString] = """
-- events.newest_operator_event
SELECT coalesce(max(event_id), 0) AS event_id FROM ff.operator_event
"""


class OperatorEvent(Event, frozen=True, kw_only=True):
    """An operator changed an execution, a flow or, if both are None, a lane, a key or the like."""

    event_type: OperatorEventType
    execution_id: ExecutionId | None
    flow_id: UUID | None
    actor: str
    reason: str | None
    details: dict[str, Any]


class _Row(msgspec.Struct, frozen=True):
    event_id: int
    partition_key: int
    execution_id: UUID | None
    flow_id: UUID | None
    event_type: str
    actor: str
    reason: str | None
    details: str
    namespace: str | None
    tags: str | None
    occurred_at_ms: int


async def read_operator_events(
    conn: Connection, after: int, upto: int, limit: int
) -> list[Entry[OperatorEvent]]:
    """The first `limit` rows with after < event_id <= upto that are visible now."""
    rows = await fetch_all(conn, READ, _Row, after=after, upto=upto, limit=limit)
    return entries(rows, _event, outbox=OPERATORS.name)


async def newest_operator_event(conn: Connection) -> int:
    """The highest id that is visible now; 0 if there is none."""
    return (await fetch_one(conn, NEWEST, Newest)).event_id


def _event(row: _Row) -> OperatorEvent:
    execution = row.execution_id
    return OperatorEvent(
        cursor=encode_cursor(row.event_id),
        event_id=row.event_id,
        event_type=OperatorEventType(row.event_type),
        execution_id=None if execution is None else ExecutionId(row.partition_key, execution),
        flow_id=row.flow_id,
        actor=row.actor,
        reason=row.reason,
        details=decoded_details(row.details),
        namespace=row.namespace,
        tags=decoded_tags(row.tags),
        at=instant(row.occurred_at_ms),
    )


OPERATORS: Final = Outbox(
    name="operator",
    topics=("operator",),
    hides_disconnects=False,
    read=read_operator_events,
    newest=newest_operator_event,
)
