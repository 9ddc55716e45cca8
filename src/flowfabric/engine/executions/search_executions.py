"""Executions by lane, state, kind, tag and time, newest first, page by page."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from flowfabric.db.rows import Connection, fetch_all
from flowfabric.engine.executions.exceptional_states import EXCEPTIONAL_STATES
from flowfabric.engine.executions.search_cursor import read_search_cursor, search_cursor
from flowfabric.engine.journal.entry import PATCH_PREFIX
from flowfabric.errors import invalid_input
from flowfabric.ids import ExecutionId, check_lane, check_tag_key, storable_text
from flowfabric.instants import check_instant, epoch_ms, instant
from flowfabric.pages import check_limit
from flowfabric.policy import milliseconds
from flowfabric.states import DIVERGENCE, PublicState

# One statement for each kind of filter: each reads the index that has its answers in their order,
# for every route that matches, and no more rows of a route than a page has.
_ROUTES: Final[LiteralString] = """
WITH RECURSIVE routes AS MATERIALIZED (
    SELECT route_id FROM ff.route
     WHERE (%(namespace)s::text IS NULL OR namespace = %(namespace)s)
       AND (%(lane_id)s::text IS NULL OR lane_id = %(lane_id)s)
       AND (%(execution_kind)s::text IS NULL OR execution_kind = %(execution_kind)s)
)"""

_IN_TIME: Final[LiteralString] = """(e.created_at_ms, e.execution_id)
                 < (%(before_ms)s::bigint, %(before_id)s::uuid)
               AND e.created_at_ms
                >= greatest(%(since_ms)s::bigint, ff.now_ms() - %(within_ms)s::bigint)"""

_NEWEST: Final[LiteralString] = """
             ORDER BY e.created_at_ms DESC, e.execution_id DESC LIMIT %(limit)s"""

_PAGE: Final[LiteralString] = """, page AS (
    SELECT partition_key, execution_id FROM found
     ORDER BY created_at_ms DESC, execution_id DESC LIMIT %(limit)s
)
SELECT e.partition_key, e.execution_id, r.namespace, r.lane_id, r.execution_kind, e.public_state,
       e.priority, e.total_attempt_count, e.created_at_ms, e.started_at_ms, e.terminal_at_ms,
       coalesce(e.failure_reason, e.cancellation_reason) AS reason, e.worker_instance_id
  FROM page JOIN ff.execution e USING (partition_key, execution_id)
  JOIN ff.route r USING (route_id)
 ORDER BY e.created_at_ms DESC, e.execution_id DESC
"""

_EXCEPTIONAL: Final[LiteralString] = f"""
    SELECT e.* FROM routes CROSS JOIN unnest(%(exceptional)s::text[]) AS asked (state)
     CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
             WHERE e.exceptional_state = asked.state AND e.route_id = routes.route_id
               AND {_IN_TIME}{_NEWEST}) AS e"""

# What has not ended and has begun, unless its handler has recorded that it takes the new branch.
# The value of such an entry is `true` in JSON or in MessagePack.
PATCH_MISSING: Final[LiteralString] = (
    "\n-- executions.search_executions: those that may take the branch of before a patch"
    + _ROUTES
    + f""", found AS (
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.execution e
             WHERE e.route_id = routes.route_id AND e.lifecycle_phase <> 'terminal'
               AND (%(public_state)s::text IS NULL OR e.public_state = %(public_state)s)
               AND e.total_attempt_count > 0
               AND NOT EXISTS (
                       SELECT FROM ff.journal j
                        WHERE (j.partition_key, j.execution_id) = (e.partition_key, e.execution_id)
                          AND j.kind = 'patch' AND j.name = %(patch)s
                          AND j.value IN ('true'::bytea, '\\xc3'::bytea))
               AND {_IN_TIME}{_NEWEST}) AS e
)"""
    + _PAGE
)

DIVERGENT: Final[LiteralString] = (
    "\n-- executions.search_executions: those whose handlers made other calls than before"
    + _ROUTES
    + f""", found AS (
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
             WHERE e.exceptional_state = 'suspended' AND e.route_id = routes.route_id
               AND starts_with(e.blocking_detail, %(divergence)s)
               AND {_IN_TIME}{_NEWEST}) AS e
)"""
    + _PAGE
)

BY_TIME: Final[LiteralString] = (
    "\n-- executions.search_executions"
    + _ROUTES
    + f""", found AS (
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.exec_core e
             WHERE e.route_id = routes.route_id AND {_IN_TIME}{_NEWEST}) AS e
)"""
    + _PAGE
)

COMPLETED: Final[LiteralString] = (
    "\n-- executions.search_executions: those that succeeded"
    + _ROUTES
    + f""", newest AS MATERIALIZED (  -- by the events of their ends: the queue is not read
    SELECT e.partition_key, e.execution_id, e.created_at_ms, core.succeeded,
           row_number() OVER (PARTITION BY e.partition_key, e.execution_id) AS nth
      FROM (SELECT e.* FROM routes CROSS JOIN LATERAL (
                    SELECT e.partition_key, e.execution_id, e.created_at_ms
                      FROM ff.completion_event e
                     WHERE e.route_id = routes.route_id AND e.outcome = 'success'
                       AND {_IN_TIME}{_NEWEST}) AS e{_NEWEST}) AS e
     CROSS JOIN LATERAL (
            SELECT c.terminal_outcome = 'success' AS succeeded FROM ff.exec_core c
             WHERE (c.partition_key, c.execution_id) = (e.partition_key, e.execution_id)
            OFFSET 0) AS core
), mixed AS (         -- was one replayed? Then each has to be looked at
    SELECT count(*) > 0 AS mixed FROM newest WHERE nth > 1 OR NOT succeeded
), found AS (
    SELECT partition_key, execution_id, created_at_ms FROM newest
     WHERE NOT (SELECT mixed FROM mixed)
     UNION ALL
    SELECT e.* FROM routes CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms
              FROM ff.completion_event e CROSS JOIN LATERAL (
                   SELECT c.terminal_outcome FROM ff.exec_core c
                    WHERE (c.partition_key, c.execution_id) = (e.partition_key, e.execution_id)
                   OFFSET 0) AS core
             WHERE e.route_id = routes.route_id AND e.outcome = 'success'
               AND core.terminal_outcome = 'success' AND {_IN_TIME}
               AND NOT EXISTS (  -- it is found once, by its last success
                       SELECT FROM ff.completion_event c
                        WHERE (c.route_id, c.created_at_ms, c.execution_id, c.partition_key)
                            = (e.route_id, e.created_at_ms, e.execution_id, e.partition_key)
                          AND c.outcome = 'success' AND c.event_id > e.event_id){_NEWEST}) AS e
     WHERE (SELECT mixed FROM mixed)
)"""
    + _PAGE
)

EXCEPTIONAL: Final[LiteralString] = (
    "\n-- executions.search_executions: delayed, blocked, suspended, or ended without success"
    + _ROUTES
    + f""", found AS ({_EXCEPTIONAL}
)"""
    + _PAGE
)

ACTIVE: Final[LiteralString] = (
    "\n-- executions.search_executions: those that a worker holds"
    + _ROUTES
    + f""", found AS (        -- there are few leases: one for each handler that runs
    SELECT e.partition_key, e.execution_id, e.created_at_ms
      FROM ff.lease l CROSS JOIN LATERAL (
            SELECT e.* FROM ff.exec_core e
             WHERE (e.partition_key, e.execution_id) = (l.partition_key, l.execution_id)
            OFFSET 0) AS e
     WHERE e.route_id IN (SELECT route_id FROM routes) AND {_IN_TIME}
)"""
    + _PAGE
)

WAITING: Final[LiteralString] = (
    "\n-- executions.search_executions: those in the queue, and those that are held back"
    + _ROUTES
    + f""", levels AS (       -- the priorities that the queue of each route has
    SELECT routes.route_id, (SELECT max(priority) FROM ff.ready q
                              WHERE q.route_id = routes.route_id) AS priority
      FROM routes
     UNION ALL
    SELECT levels.route_id, (SELECT max(priority) FROM ff.ready q
                              WHERE q.route_id = levels.route_id AND q.priority < levels.priority)
      FROM levels WHERE levels.priority IS NOT NULL
), newest AS MATERIALIZED (  -- of the queue, by its index alone; then the executions of a page
    SELECT e.partition_key, e.execution_id, e.created_at_ms, core.resume_pending
      FROM (SELECT e.* FROM levels CROSS JOIN LATERAL (
                    SELECT e.partition_key, e.execution_id, e.created_at_ms FROM ff.ready e
                     WHERE e.route_id = levels.route_id AND e.priority = levels.priority
                       AND {_IN_TIME}{_NEWEST}) AS e{_NEWEST}) AS e
     CROSS JOIN LATERAL (
            SELECT c.resume_pending FROM ff.exec_core c
             WHERE (c.partition_key, c.execution_id) = (e.partition_key, e.execution_id)
            OFFSET 0) AS core
), mixed AS (         -- are others among them? Then each has to be looked at
    SELECT count(*) > 0 AS mixed FROM newest WHERE resume_pending <> %(resume_pending)s
), found AS (
    SELECT partition_key, execution_id, created_at_ms FROM newest
     WHERE NOT (SELECT mixed FROM mixed)
     UNION ALL
    SELECT e.* FROM levels CROSS JOIN LATERAL (
            SELECT e.partition_key, e.execution_id, e.created_at_ms
              FROM ff.ready e CROSS JOIN LATERAL (
                   SELECT c.resume_pending FROM ff.exec_core c
                    WHERE (c.partition_key, c.execution_id) = (e.partition_key, e.execution_id)
                   OFFSET 0) AS core
             WHERE e.route_id = levels.route_id AND e.priority = levels.priority
               AND core.resume_pending = %(resume_pending)s AND {_IN_TIME}{_NEWEST}) AS e
     WHERE (SELECT mixed FROM mixed)
     UNION ALL{_EXCEPTIONAL}
)"""
    + _PAGE
)

BY_TAG: Final[LiteralString] = (
    "\n-- executions.search_executions: by tag"
    + _ROUTES
    + f""", found AS (
    SELECT e.partition_key, e.execution_id, e.created_at_ms
      FROM ff.exec_tag e JOIN ff.execution x USING (partition_key, execution_id)
     WHERE (e.tag_key, e.tag_value) = (%(tag_key)s, %(tag_value)s) AND {_IN_TIME}
       AND x.route_id IN (SELECT route_id FROM routes)
       AND (%(public_state)s::text IS NULL OR x.public_state = %(public_state)s){_NEWEST}
)"""
    + _PAGE
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
    divergent: bool = False
    """Only those that are suspended because their handlers made other calls than before."""
    patch_missing: str | None = None
    """Only those of the kind that have begun, have not ended, and may not have this patch."""


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

    Raises `ValidationError(invalid_input)` for an invalid lane, tag key, cursor or limit, for
    `patch_missing` without a kind, and for filters that do not go together.
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
    state = search.public_state
    if search.divergent or search.patch_missing is not None:
        rows = await _of_handlers(conn, search, parameters)
    elif search.tag is not None:
        parameters |= {"tag_key": tag_key, "tag_value": tag_value}
        parameters["public_state"] = None if state is None else state.value
        rows = await fetch_all(conn, BY_TAG, _Row, **parameters)
    elif state is None:
        rows = await fetch_all(conn, BY_TIME, _Row, **parameters)
    elif state is PublicState.COMPLETED:
        rows = await fetch_all(conn, COMPLETED, _Row, **parameters)
    elif state is PublicState.ACTIVE:
        rows = await fetch_all(conn, ACTIVE, _Row, **parameters)
    else:
        parameters["exceptional"] = list(EXCEPTIONAL_STATES[state])
        if state in (PublicState.WAITING, PublicState.RESUMABLE):
            parameters["resume_pending"] = state is PublicState.RESUMABLE
            rows = await fetch_all(conn, WAITING, _Row, **parameters)
        else:
            rows = await fetch_all(conn, EXCEPTIONAL, _Row, **parameters)
    page = rows[:limit]
    more = len(rows) > limit
    return SearchPage(
        executions=[_found(row) for row in page],
        next_cursor=search_cursor(page[-1].created_at_ms, page[-1].execution_id) if more else None,
    )


async def _of_handlers(
    conn: Connection, search: Search, parameters: dict[str, object]
) -> list[_Row]:
    """Executions by what their handlers have recorded, or could not."""
    state, patch = search.public_state, search.patch_missing
    if search.tag is not None:
        raise invalid_input("tag", search.tag[0], "cannot be given with divergent or patch_missing")
    if patch is None:
        if state not in (None, PublicState.SUSPENDED):
            raise invalid_input("public_state", state.value, "is not that of what is divergent")
        return await fetch_all(conn, DIVERGENT, _Row, divergence=DIVERGENCE, **parameters)
    if search.divergent:
        raise invalid_input("patch_missing", patch, "cannot be given with divergent")
    if search.execution_kind is None:
        raise invalid_input("patch_missing", patch, "must be given with a kind")
    storable_text(patch, field="patch_missing")
    parameters |= {
        "patch": PATCH_PREFIX + patch,
        "public_state": None if state is None else state.value,
    }
    return await fetch_all(conn, PATCH_MISSING, _Row, **parameters)


def _start(search: Search, cursor: str | None) -> tuple[int, UUID]:
    if cursor is not None:
        return read_search_cursor(cursor)
    if search.created_before is not None:
        return epoch_ms(check_instant(search.created_before, field="created_before")), UUID(int=0)
    return _END_OF_TIME, _LAST


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
