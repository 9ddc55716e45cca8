"""Executions by state, kind, lane, tag, time and more, page by page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.executions.search import Search, SearchPlace, parameters_of, plan
from flowfabric.engine.executions.search_cursor import search_cursor
from flowfabric.engine.executions.search_sql import (
    AFTER_LONGER,
    AFTER_NEWER,
    AFTER_OLDER,
    LONGEST,
    NEWEST,
    OLDEST,
    active,
    by_flow,
    by_key,
    by_tag,
    by_time_of_all,
    completed,
    divergent,
    exceptional,
    page_of,
    patch_missing,
    resumable,
    retried,
    unsuccessful,
    waiting,
)
from flowfabric.engine.executions.unserved_routes import unserved_routes
from flowfabric.ids import ExecutionId
from flowfabric.instants import instant
from flowfabric.pages import check_limit
from flowfabric.states import BlockingReason, PublicState
from flowfabric.tags import read_tags

__all__ = ["FoundExecution", "Search", "SearchPage", "search_executions"]

BY_TIME: Final[LiteralString] = page_of(
    "\n-- executions.search_executions",
    by_time_of_all(AFTER_NEWER, NEWEST),
    NEWEST,
)
COMPLETED: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that succeeded",
    completed(AFTER_NEWER, NEWEST),
    NEWEST,
)
EXCEPTIONAL: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: delayed, blocked, suspended, or ended without success",
    exceptional(AFTER_NEWER, NEWEST),
    NEWEST,
)
ACTIVE: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that a worker holds",
    active(AFTER_NEWER),
    NEWEST,
)
WAITING: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those in the queue, and those that are held back",
    waiting(AFTER_NEWER, NEWEST),
    NEWEST,
)
RESUMABLE: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that resume",
    resumable(AFTER_NEWER, NEWEST),
    NEWEST,
)
RETRIED: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that had several attempts",
    retried(AFTER_NEWER, NEWEST),
    NEWEST,
)
BY_TAG: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: by tag",
    by_tag(AFTER_NEWER, NEWEST),
    NEWEST,
)
BY_FLOW: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: members of a flow",
    by_flow(AFTER_NEWER, NEWEST),
    NEWEST,
)
BY_KEY: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: by idempotency key",
    by_key(AFTER_NEWER, NEWEST),
    NEWEST,
)
UNSUCCESSFUL: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: ended without success in any route",
    unsuccessful(AFTER_NEWER, NEWEST),
    NEWEST,
)
UNSUCCESSFUL_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: ended without success in any route, the oldest first",
    unsuccessful(AFTER_OLDER, OLDEST),
    OLDEST,
)
DIVERGENT: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those whose handlers made other calls than before",
    divergent(AFTER_NEWER, NEWEST),
    NEWEST,
)
PATCH_MISSING: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that may take the branch of before a patch",
    patch_missing(AFTER_NEWER, NEWEST),
    NEWEST,
)
BY_TIME_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: the oldest first",
    by_time_of_all(AFTER_OLDER, OLDEST),
    OLDEST,
)
COMPLETED_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that succeeded, the oldest first",
    completed(AFTER_OLDER, OLDEST),
    OLDEST,
)
EXCEPTIONAL_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: not as usual, the oldest first",
    exceptional(AFTER_OLDER, OLDEST),
    OLDEST,
)
ACTIVE_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that a worker holds, the oldest first",
    active(AFTER_OLDER),
    OLDEST,
)
WAITING_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that wait, the oldest first",
    waiting(AFTER_OLDER, OLDEST),
    OLDEST,
)
RESUMABLE_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that resume, the oldest first",
    resumable(AFTER_OLDER, OLDEST),
    OLDEST,
)
RETRIED_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that had several attempts, the oldest first",
    retried(AFTER_OLDER, OLDEST),
    OLDEST,
)
BY_TAG_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: by tag, the oldest first",
    by_tag(AFTER_OLDER, OLDEST),
    OLDEST,
)
BY_FLOW_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: members of a flow, the oldest first",
    by_flow(AFTER_OLDER, OLDEST),
    OLDEST,
)
BY_KEY_OLDEST: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: by idempotency key, the oldest first",
    by_key(AFTER_OLDER, OLDEST),
    OLDEST,
)
LONGEST_ACTIVE: Final[LiteralString] = page_of(
    "\n-- executions.search_executions: those that a worker holds, the longest running first",
    active(AFTER_LONGER),
    LONGEST,
)

_STATEMENTS: Final[Mapping[str, Mapping[SearchPlace, LiteralString]]] = {
    "new": {
        "by_time": BY_TIME,
        "completed": COMPLETED,
        "exceptional": EXCEPTIONAL,
        "unsuccessful": UNSUCCESSFUL,
        "active": ACTIVE,
        "waiting": WAITING,
        "resumable": RESUMABLE,
        "retried": RETRIED,
        "by_tag": BY_TAG,
        "by_flow": BY_FLOW,
        "by_key": BY_KEY,
        "divergent": DIVERGENT,
        "patch_missing": PATCH_MISSING,
    },
    "old": {
        "by_time": BY_TIME_OLDEST,
        "completed": COMPLETED_OLDEST,
        "exceptional": EXCEPTIONAL_OLDEST,
        "unsuccessful": UNSUCCESSFUL_OLDEST,
        "active": ACTIVE_OLDEST,
        "waiting": WAITING_OLDEST,
        "resumable": RESUMABLE_OLDEST,
        "retried": RETRIED_OLDEST,
        "by_tag": BY_TAG_OLDEST,
        "by_flow": BY_FLOW_OLDEST,
        "by_key": BY_KEY_OLDEST,
    },
    "long": {"active": LONGEST_ACTIVE},
}


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
    flow_id: UUID | None
    member_name: str | None
    tags: dict[str, str]
    blocking_reason: BlockingReason | None
    """What the execution waits for."""
    attempt_started_at: datetime | None
    """When the last attempt began."""


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page, and the cursor for the next one if there may be more."""

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
    flow_id: UUID | None
    tags: str
    blocking_reason: str
    attempt_started_at_ms: int | None
    member_name: str | None


async def search_executions(
    conn: Connection,
    search: Search,
    *,
    cursor: str | None = None,
    limit: int = 50,
    partitions: int = 256,
) -> SearchPage:
    """At most `limit` (1000) executions that match everything asked for, in the order of `sort`.

    Raises `ValidationError(invalid_input)` for an invalid lane, tag key, cursor or limit, for
    `patch_missing` without a kind, and for filters that do not go together.
    """
    check_limit(limit)
    parameters = parameters_of(search, cursor, limit + 1, partitions)
    if search.unserved:
        parameters["route_ids"] = await unserved_routes(conn, search.namespace)
    statements, found = _STATEMENTS[search.sort], dict[tuple[int, UUID], _Row]()
    for place, more in plan(search):
        for row in await _rows(conn, statements[place], {**parameters, **more}):
            found[row.partition_key, row.execution_id] = row
    rows = sorted(found.values(), key=lambda row: _place(search, row), reverse=search.sort == "new")
    page = rows[:limit]
    more_rows = len(rows) > limit
    return SearchPage(
        executions=[_found(row) for row in page],
        next_cursor=search_cursor(search, *_place(search, page[-1])) if more_rows else None,
    )


async def _rows(
    conn: Connection, sql: LiteralString, parameters: Mapping[str, object]
) -> list[_Row]:
    return await fetch_all(conn, sql, _Row, **parameters)


def _place(search: Search, row: _Row) -> tuple[int, UUID]:
    """The place of the execution in the order of the search."""
    if search.sort == "long":
        return row.attempt_started_at_ms or 0, row.execution_id
    return row.created_at_ms, row.execution_id


def _found(row: _Row) -> FoundExecution:
    blocked = None if row.blocking_reason == BlockingReason.NONE else row.blocking_reason
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
        flow_id=row.flow_id,
        member_name=row.member_name,
        tags=read_tags(row.tags),
        blocking_reason=None if blocked is None else BlockingReason(blocked),
        attempt_started_at=instant(row.attempt_started_at_ms),
    )
