"""The open waitpoints of all executions, newest first, page by page, without their tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.suspensions.list_pending_waitpoints import PendingWaitpoint
from flowfabric.engine.suspensions.waitpoint import decode_schema
from flowfabric.ids import ExecutionId, check_lane, check_name
from flowfabric.instants import instant
from flowfabric.pages import check_limit, cursor_after, newest_before
from flowfabric.states import WaitpointState
from flowfabric.tokens import WaitpointToken

LIST_OPEN_WAITPOINTS: Final[LiteralString] = """
-- suspensions.list_open_waitpoints
SELECT w.partition_key, w.execution_id, w.waitpoint_id, w.waitpoint_key, w.state,
       w.required_signal_names, w.created_at_ms, w.activated_at_ms, w.expires_at_ms, w.token_kid,
       w.token, w.signal_count, w.last_signal_at_ms, w.last_hmac_validation_failed_at_ms,
       w.answer_schema::text AS answer_schema, r.namespace, r.lane_id, r.execution_kind,
       e.tags ->> 'ff.question' AS question
  FROM ff.waitpoint_pending w JOIN ff.exec_core e USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 WHERE w.state <> 'closed' AND e.lifecycle_phase <> 'terminal'
   AND (w.created_at_ms, w.waitpoint_id) < (%(before_ms)s::bigint, %(before_id)s::uuid)
   AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
   AND (%(lane_id)s::text IS NULL OR r.lane_id = %(lane_id)s)
 ORDER BY w.created_at_ms DESC, w.waitpoint_id DESC LIMIT %(limit)s
"""


class OpenWaitpoint(PendingWaitpoint, frozen=True, kw_only=True):
    """An open waitpoint, with what is known of its execution and of its signals."""

    namespace: str
    lane_id: str
    execution_kind: str
    signal_count: int
    last_signal_at: datetime | None
    last_hmac_validation_failed_at: datetime | None
    """When a signal came with a wrong token."""
    answer_schema: dict[str, Any] | None = None
    """JSON schema of the payload that people are asked for."""
    question: str | None = None
    """As the tag `ff.question` of the execution says it."""


class OpenWaitpointPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some open waitpoints, and the cursor for the next page if there is one."""

    waitpoints: list[OpenWaitpoint]
    next_cursor: str | None


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    waitpoint_id: UUID
    waitpoint_key: str
    state: str
    required_signal_names: list[str]
    created_at_ms: int
    activated_at_ms: int | None
    expires_at_ms: int | None
    token_kid: str
    token: str
    signal_count: int
    last_signal_at_ms: int | None
    last_hmac_validation_failed_at_ms: int | None
    answer_schema: str | None
    namespace: str
    lane_id: str
    execution_kind: str
    question: str | None

    def __repr__(self) -> str:
        return f"_Row(waitpoint_id={self.waitpoint_id!r})"

    def waitpoint(self) -> OpenWaitpoint:
        return OpenWaitpoint(
            execution_id=ExecutionId(self.partition_key, self.execution_id),
            waitpoint_id=self.waitpoint_id,
            waitpoint_key=self.waitpoint_key,
            state=WaitpointState(self.state),
            required_signal_names=tuple(self.required_signal_names),
            created_at=instant(self.created_at_ms),
            activated_at=instant(self.activated_at_ms),
            expires_at=instant(self.expires_at_ms),
            token_kid=self.token_kid,
            token_fingerprint=WaitpointToken(self.token).fingerprint,
            namespace=self.namespace,
            lane_id=self.lane_id,
            execution_kind=self.execution_kind,
            signal_count=self.signal_count,
            last_signal_at=instant(self.last_signal_at_ms),
            last_hmac_validation_failed_at=instant(self.last_hmac_validation_failed_at_ms),
            answer_schema=decode_schema(self.answer_schema),
            question=self.question,
        )


async def list_open_waitpoints(
    conn: Connection,
    *,
    namespace: str | None = None,
    lane_id: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> OpenWaitpointPage:
    """At most `limit` (1000) waitpoints that are pending or active, the newest first.

    Those of executions that have ended take no signals and are left out. With `namespace` or
    `lane_id`, those of their executions only. Raises `ValidationError(invalid_input)` for a filter,
    a limit or a cursor that cannot be.
    """
    check_limit(limit)
    if namespace is not None:
        check_name(namespace, field="namespace")
    if lane_id is not None:
        check_lane(lane_id)
    before_ms, before_id = newest_before(cursor, page_of="waitpoints")
    rows = await fetch_all(
        conn,
        LIST_OPEN_WAITPOINTS,
        _Row,
        before_ms=before_ms,
        before_id=before_id,
        namespace=namespace,
        lane_id=lane_id,
        limit=limit + 1,
    )
    return OpenWaitpointPage(
        waitpoints=[row.waitpoint() for row in rows[:limit]],
        next_cursor=cursor_after(rows, limit, lambda row: (row.created_at_ms, row.waitpoint_id)),
    )
