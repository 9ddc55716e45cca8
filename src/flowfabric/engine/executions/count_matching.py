"""How many executions a search finds, up to a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, LiteralString

import msgspec

from flowfabric.db.rows import Connection, fetch_one
from flowfabric.engine.executions.search import Search, SearchPlace, parameters_of, plan
from flowfabric.engine.executions.search_sql import (
    AFTER_NEWER,
    ANY_ORDER,
    active,
    by_flow,
    by_key,
    by_tag,
    by_time,
    completed,
    count_of,
    divergent,
    exceptional,
    patch_missing,
    resumable,
    retried,
    unsuccessful,
    waiting,
)
from flowfabric.engine.executions.unserved_routes import unserved_routes
from flowfabric.pages import check_limit

MOST: Final = 100_000
"""The highest number that is counted to."""

COUNT_BY_TIME: Final[LiteralString] = count_of(
    "\n-- executions.count_matching", by_time(AFTER_NEWER, ANY_ORDER)
)
COUNT_COMPLETED: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: those that succeeded", completed(AFTER_NEWER, ANY_ORDER)
)
COUNT_EXCEPTIONAL: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: not as usual", exceptional(AFTER_NEWER, ANY_ORDER)
)
COUNT_UNSUCCESSFUL: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: ended without success in any route",
    unsuccessful(AFTER_NEWER, ANY_ORDER),
)
COUNT_ACTIVE: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: those that a worker holds", active(AFTER_NEWER)
)
COUNT_WAITING: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: those that wait", waiting(AFTER_NEWER, ANY_ORDER)
)
COUNT_RESUMABLE: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: those that resume", resumable(AFTER_NEWER, ANY_ORDER)
)
COUNT_RETRIED: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: those that had several attempts",
    retried(AFTER_NEWER, ANY_ORDER),
)
COUNT_BY_TAG: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: by tag", by_tag(AFTER_NEWER, ANY_ORDER)
)
COUNT_BY_FLOW: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: members of a flow", by_flow(AFTER_NEWER, ANY_ORDER)
)
COUNT_BY_KEY: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: by idempotency key", by_key(AFTER_NEWER, ANY_ORDER)
)
COUNT_DIVERGENT: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: those whose handlers made other calls than before",
    divergent(AFTER_NEWER, ANY_ORDER),
)
COUNT_PATCH_MISSING: Final[LiteralString] = count_of(
    "\n-- executions.count_matching: those that may take the branch of before a patch",
    patch_missing(AFTER_NEWER, ANY_ORDER),
)

_STATEMENTS: Final[Mapping[SearchPlace, LiteralString]] = {
    "by_time": COUNT_BY_TIME,
    "completed": COUNT_COMPLETED,
    "exceptional": COUNT_EXCEPTIONAL,
    "unsuccessful": COUNT_UNSUCCESSFUL,
    "active": COUNT_ACTIVE,
    "waiting": COUNT_WAITING,
    "resumable": COUNT_RESUMABLE,
    "retried": COUNT_RETRIED,
    "by_tag": COUNT_BY_TAG,
    "by_flow": COUNT_BY_FLOW,
    "by_key": COUNT_BY_KEY,
    "divergent": COUNT_DIVERGENT,
    "patch_missing": COUNT_PATCH_MISSING,
}


class MatchCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many executions match; there are more if `more` is true."""

    count: int
    more: bool


class _Row(msgspec.Struct, frozen=True):
    found: int


async def count_matching(
    conn: Connection, search: Search, *, at_most: int = 10_000, partitions: int = 256
) -> MatchCount:
    """MatchCount the executions that match everything asked for, up to `at_most` (100,000).

    Raises `ValidationError(invalid_input)` as `search_executions` does.
    """
    check_limit(at_most, at_most=MOST, field="at_most")
    parameters = parameters_of(search, None, at_most + 1, partitions)
    if search.unserved:
        parameters["route_ids"] = await unserved_routes(conn, search.namespace)
    counted = 0
    for place, more in plan(search):
        counted += await _count(conn, _STATEMENTS[place], {**parameters, **more})
        if counted > at_most:
            break
    return MatchCount(count=min(counted, at_most), more=counted > at_most)


async def _count(conn: Connection, sql: LiteralString, parameters: Mapping[str, object]) -> int:
    return (await fetch_one(conn, sql, _Row, **parameters)).found
