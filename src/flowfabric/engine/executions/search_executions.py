"""Executions by lane, state, kind, tag and time, newest first, page by page."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, check_lane, check_tag_key, storable_text
from flowfabric.instants import check_instant, epoch_ms, instant
from flowfabric.pages import check_limit
from flowfabric.policy import milliseconds
from flowfabric.states import PublicState

_COLUMNS: Final[LiteralString] = """
SELECT e.partition_key, e.execution_id, r.namespace, r.lane_id, r.execution_kind, e.public_state,
       e.priority, e.total_attempt_count, e.created_at_ms, e.started_at_ms, e.terminal_at_ms,
       coalesce(e.failure_reason, e.cancellation_reason) AS reason, e.worker_instance_id
"""

_FILTERED: Final[LiteralString] = """
   AND (%(namespace)s::text IS NULL OR r.namespace = %(namespace)s)
   AND (%(lane_id)s::text IS NULL OR r.lane_id = %(lane_id)s)
   AND (%(execution_kind)s::text IS NULL OR r.execution_kind = %(execution_kind)s)
   AND (%(public_state)s::text IS NULL OR e.public_state = %(public_state)s)
"""

BY_TIME: Final[LiteralString] = (
    "\n-- executions.search_executions"
    + _COLUMNS
    + """  FROM ff.exec_body b
  JOIN ff.exec_core e USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 WHERE (b.created_at_ms, b.execution_id) < (%(before_ms)s, %(before_id)s)
   AND b.created_at_ms >= greatest(%(since_ms)s, ff.now_ms() - %(within_ms)s)"""
    + _FILTERED
    + """ ORDER BY b.created_at_ms DESC, b.execution_id DESC LIMIT %(limit)s
"""
)

BY_TAG: Final[LiteralString] = (
    "\n-- executions.search_executions: by tag"
    + _COLUMNS
    + """  FROM ff.exec_tag t
  JOIN ff.exec_core e USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 WHERE (t.tag_key, t.tag_value) = (%(tag_key)s, %(tag_value)s)
   AND (t.created_at_ms, t.execution_id) < (%(before_ms)s, %(before_id)s)
   AND t.created_at_ms >= greatest(%(since_ms)s, ff.now_ms() - %(within_ms)s)"""
    + _FILTERED
    + """ ORDER BY t.created_at_ms DESC, t.execution_id DESC LIMIT %(limit)s
"""
)

BY_OUTCOME: Final[LiteralString] = (
    "\n-- executions.search_executions: by an outcome other than success"
    + _COLUMNS
    + """  FROM ff.exec_core e
  JOIN ff.route r USING (route_id)
 WHERE e.terminal_outcome = %(public_state)s
   AND e.terminal_outcome IN ('failed', 'cancelled', 'expired', 'skipped')
   AND (e.created_at_ms, e.execution_id) < (%(before_ms)s, %(before_id)s)
   AND e.created_at_ms >= greatest(%(since_ms)s, ff.now_ms() - %(within_ms)s)"""
    + _FILTERED
    + """ ORDER BY e.created_at_ms DESC, e.execution_id DESC LIMIT %(limit)s
"""
)

_NOT_SUCCESS: Final = frozenset(
    {PublicState.FAILED, PublicState.CANCELLED, PublicState.EXPIRED, PublicState.SKIPPED}
)
_END_OF_TIME: Final = 2**62
_LAST: Final = UUID(int=2**128 - 1)


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for; a field that is None is not compared."""

    namespace: str | None = None
    lane_id: str | None = None
    execution_kind: str | None = None
    public_state: PublicState | None = None
    tag: tuple[str, str] | None = None
    created_since: datetime | None = None
    created_within: float | timedelta | None = None
    """Created at most so long ago, by the clock of the database."""
    created_before: datetime | None = None


class FoundExecution(msgspec.Struct, frozen=True, kw_only=True):
    """One execution that a search found."""

    execution_id: ExecutionId
    namespace: str
    lane_id: str
    execution_kind: str
    public_state: PublicState
    priority: int
    total_attempt_count: int
    created_at: datetime
    started_at: datetime | None
    terminal_at: datetime | None
    reason: str | None
    worker_instance_id: str | None


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page, newest first, and the cursor for the next one if there may be more."""

    executions: list[FoundExecution]
    next_cursor: str | None


class _Row(msgspec.Struct, frozen=True):
    partition_key: int
    execution_id: UUID
    namespace: str
    lane_id: str
    execution_kind: str
    public_state: str
    priority: int
    total_attempt_count: int
    created_at_ms: int
    started_at_ms: int | None
    terminal_at_ms: int | None
    reason: str | None
    worker_instance_id: str | None


async def search_executions(
    conn: Connection, search: Search, *, cursor: str | None = None, limit: int = 50
) -> SearchPage:
    """At most `limit` (1000) executions that match everything asked for, newest first.

    Raises `ValidationError(invalid_input)` for an invalid lane, tag key, cursor or limit.
    """
    check_limit(limit)
    if search.lane_id is not None:
        check_lane(search.lane_id)
    for field in ("namespace", "execution_kind"):
        text = getattr(search, field)
        if text is not None:
            storable_text(text, field=field)
    tag_key, tag_value = search.tag or (None, None)
    if tag_key is not None and tag_value is not None:
        check_tag_key(tag_key)
        storable_text(tag_value, field=f"tag {tag_key}")
    before_ms, before_id = _start(search, cursor)
    parameters: dict[str, object] = {
        "namespace": search.namespace,
        "lane_id": search.lane_id,
        "execution_kind": search.execution_kind,
        "public_state": None if search.public_state is None else search.public_state.value,
        "before_ms": before_ms,
        "before_id": before_id,
        "since_ms": 0
        if search.created_since is None
        else epoch_ms(check_instant(search.created_since, field="created_since")),
        "within_ms": _END_OF_TIME
        if search.created_within is None
        else milliseconds(search.created_within, field="created_within"),
        "limit": limit + 1,
    }
    if search.tag is not None:
        rows = await fetch_all(
            conn, BY_TAG, _Row, tag_key=tag_key, tag_value=tag_value, **parameters
        )
    elif search.public_state in _NOT_SUCCESS:
        rows = await fetch_all(conn, BY_OUTCOME, _Row, **parameters)
    else:
        rows = await fetch_all(conn, BY_TIME, _Row, **parameters)
    page = rows[:limit]
    more = len(rows) > limit
    return SearchPage(
        executions=[_found(row) for row in page],
        next_cursor=_cursor(page[-1].created_at_ms, page[-1].execution_id) if more else None,
    )


def _start(search: Search, cursor: str | None) -> tuple[int, UUID]:
    if cursor is not None:
        return _read_cursor(cursor)
    if search.created_before is not None:
        return epoch_ms(check_instant(search.created_before, field="created_before")), UUID(int=0)
    return _END_OF_TIME, _LAST


def _cursor(created_at_ms: int, execution_id: UUID) -> str:
    return base64.urlsafe_b64encode(created_at_ms.to_bytes(8, "big") + execution_id.bytes).decode()


def _read_cursor(cursor: str) -> tuple[int, UUID]:
    try:
        data = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise invalid_input("cursor", cursor, "was not made by a search") from None
    if len(data) != 24:
        raise invalid_input("cursor", cursor, "was not made by a search")
    return int.from_bytes(data[:8], "big") & 2**62 - 1, UUID(bytes=data[8:])


def _found(row: _Row) -> FoundExecution:
    return FoundExecution(
        execution_id=ExecutionId(row.partition_key, row.execution_id),
        namespace=row.namespace,
        lane_id=row.lane_id,
        execution_kind=row.execution_kind,
        public_state=PublicState(row.public_state),
        priority=row.priority,
        total_attempt_count=row.total_attempt_count,
        created_at=instant(row.created_at_ms),
        started_at=instant(row.started_at_ms),
        terminal_at=instant(row.terminal_at_ms),
        reason=row.reason,
        worker_instance_id=row.worker_instance_id,
    )
