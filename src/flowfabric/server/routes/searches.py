"""Executions by what they have in common: searched for, counted, and grouped by failure."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal
from uuid import UUID

import msgspec

from flowfabric.engine.executions.count_matching import MatchCount
from flowfabric.engine.executions.group_failures import FailureGroups
from flowfabric.engine.executions.search import Search
from flowfabric.engine.executions.search_executions import FoundExecution
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import FreeText, NamespaceQuery, check_limit, page, page_of, tag_of
from flowfabric.server.table import Route, route
from flowfabric.states import PublicState, Scope


class FilterQuery(NamespaceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which executions: those that match everything that is given."""

    state: list[PublicState] = msgspec.field(default_factory=list[PublicState])
    """Any of these."""
    kind: list[FreeText] = msgspec.field(default_factory=list[FreeText])
    """Any of these."""
    lane: str | None = None
    tag: list[FreeText] = msgspec.field(default_factory=list[FreeText])
    """`key=value`, any of these, at most three"""
    flow: UUID | None = None
    worker: str | None = None
    """Held by this process, or by one of this pool."""
    key: str | None = None
    """The last that was submitted with this idempotency key."""
    reason: str | None = None
    """A text in the reason of its failure or cancellation."""
    min_attempts: int = 0
    since: datetime | None = None
    before: datetime | None = None
    within: float | None = None
    """Created in the last so many seconds."""
    divergent: bool = False
    patch_missing: str | None = None


class SearchQuery(FilterQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which executions, and in which order: the newest, the oldest or the longest running first."""

    sort: Literal["new", "old", "long"] = "new"
    limit: int = 50
    cursor: str | None = None


class CountQuery(FilterQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which executions, and how far they are counted."""

    at_most: int = 10_000


class FailuresQuery(NamespaceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which failures: of executions that were created in the last `window` seconds."""

    window: float = 86_400.0
    newest: int = 1000
    lane: str | None = None
    kind: str | None = None


def search_of(call: ApiCall, query: FilterQuery) -> Search:
    """The search that the parameters describe, in a namespace of the caller."""
    tags = [found for each in query.tag if (found := tag_of(each)) is not None]
    keyed = query.key is not None
    return Search(
        namespace=call.namespace(query.namespace) if keyed else call.only(query.namespace),
        lane_id=query.lane,
        execution_kinds=tuple(query.kind),
        public_states=tuple(query.state),
        tags=tuple(tags),
        flow_id=query.flow,
        worker=query.worker,
        idempotency_key=query.key,
        reason=query.reason,
        min_attempts=query.min_attempts,
        created_since=query.since,
        created_within=query.within,
        created_before=query.before,
        divergent=query.divergent,
        patch_missing=query.patch_missing,
    )


async def search_executions(call: ApiCall, query: SearchQuery) -> Reply:
    """Executions that match, the newest first."""
    search = msgspec.structs.replace(search_of(call, query), sort=query.sort)
    found = await call.engine.search_executions(
        search, cursor=query.cursor, limit=check_limit(query.limit)
    )
    return page(call, FoundExecution, found.executions, found.next_cursor, query)


async def count_matching(call: ApiCall, query: CountQuery) -> MatchCount:
    """How many executions match, up to `at_most`."""
    return await call.engine.count_matching(search_of(call, query), at_most=query.at_most)


async def group_failures(call: ApiCall, query: FailuresQuery) -> FailureGroups:
    """The newest executions that failed, by kind and cause."""
    return await call.engine.group_failures(
        window=query.window,
        newest=query.newest,
        namespace=call.only(query.namespace),
        lane_id=query.lane,
        execution_kind=query.kind,
    )


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "GET",
        "/v1/executions",
        search_executions,
        scope=Scope.READ,
        query=SearchQuery,
        answers={200: page_of(FoundExecution)},
    ),
    route(
        "GET",
        "/v1/executions/count",
        count_matching,
        scope=Scope.READ,
        query=CountQuery,
        answers={200: MatchCount},
    ),
    route(
        "GET",
        "/v1/failures",
        group_failures,
        scope=Scope.READ,
        query=FailuresQuery,
        answers={200: FailureGroups},
    ),
)
