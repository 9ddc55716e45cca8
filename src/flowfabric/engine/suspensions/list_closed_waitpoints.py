"""The waitpoints that were answered or have expired, of all executions, the newest first."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, LiteralString
from uuid import UUID

import msgspec

from flowfabric.conditions import Signal
from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.suspensions.waitpoint import decode_signals
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, check_name
from flowfabric.instants import instant
from flowfabric.pages import check_limit, cursor_after, newest_before
from flowfabric.states import PublicState

LIST_CLOSED_WAITPOINTS: Final[LiteralString] = """
-- suspensions.list_closed_waitpoints
SELECT w.partition_key, w.execution_id, w.waitpoint_id, w.waitpoint_key, w.created_at_ms,
       w.expires_at_ms, w.closed_at_ms, w.close_reason, w.signals, r.namespace, r.lane_id,
       r.execution_kind, e.public_state, e.tags ->> 'ff.question' AS question
  FROM ff.waitpoint_pending w JOIN ff.execution e USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 WHERE w.closed_as = %(closed_as)s
   AND (w.closed_at_ms, w.waitpoint_id) < (%(before_ms)s::bigint, %(before_id)s::uuid)
   AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
 ORDER BY w.closed_at_ms DESC, w.waitpoint_id DESC LIMIT %(limit)s
"""

ClosedAs = Literal["answered", "expired"]


class EndedWaitpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A waitpoint that takes no more signals, those that came, and what became of its execution."""

    execution_id: ExecutionId
    waitpoint_id: UUID
    waitpoint_key: str
    question: str | None
    """As the tag `ff.question` of the execution says it."""
    created_at: datetime
    expires_at: datetime | None
    closed_at: datetime
    close_reason: str
    signals: tuple[Signal, ...]
    namespace: str
    lane_id: str
    execution_kind: str
    public_state: PublicState


class EndedWaitpointPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some closed waitpoints, and the cursor for the next page if there is one."""

    waitpoints: list[EndedWaitpoint]
    next_cursor: str | None


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    waitpoint_id: UUID
    waitpoint_key: str
    created_at_ms: int
    expires_at_ms: int | None
    closed_at_ms: int
    close_reason: str
    signals: str
    namespace: str
    lane_id: str
    execution_kind: str
    public_state: str
    question: str | None

    def waitpoint(self) -> EndedWaitpoint:
        return EndedWaitpoint(
            execution_id=ExecutionId(self.partition_key, self.execution_id),
            waitpoint_id=self.waitpoint_id,
            waitpoint_key=self.waitpoint_key,
            question=self.question,
            created_at=instant(self.created_at_ms),
            expires_at=instant(self.expires_at_ms),
            closed_at=instant(self.closed_at_ms),
            close_reason=self.close_reason,
            signals=tuple(each.signal() for each in decode_signals(self.signals)),
            namespace=self.namespace,
            lane_id=self.lane_id,
            execution_kind=self.execution_kind,
            public_state=PublicState(self.public_state),
        )


async def list_closed_waitpoints(
    conn: Connection,
    closed_as: ClosedAs,
    *,
    namespace: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> EndedWaitpointPage:
    """At most `limit` (1000) waitpoints that closed so, the newest first.

    `expired`: the time of the waitpoint or of its suspension was over, whatever had come by then.
    `answered`: a signal had come before that. With `namespace`, those of its executions only.
    Raises `ValidationError(invalid_input)` for an argument that cannot be.
    """
    if closed_as not in ("answered", "expired"):
        raise invalid_input("closed_as", closed_as, "must be answered or expired")
    check_limit(limit)
    if namespace is not None:
        check_name(namespace, field="namespace")
    before_ms, before_id = newest_before(cursor, page_of="waitpoints")
    rows = await fetch_all(
        conn,
        LIST_CLOSED_WAITPOINTS,
        _Row,
        closed_as=closed_as,
        before_ms=before_ms,
        before_id=before_id,
        namespace=namespace,
        limit=limit + 1,
    )
    return EndedWaitpointPage(
        waitpoints=[row.waitpoint() for row in rows[:limit]],
        next_cursor=cursor_after(rows, limit, lambda row: (row.closed_at_ms, row.waitpoint_id)),
    )
