"""Changes of many executions, and saved searches."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from flowfabric.engine.bulk.action import BulkArguments
from flowfabric.engine.bulk.list_bulk_targets import BulkTarget
from flowfabric.engine.bulk.preview_bulk_action import BulkPreview
from flowfabric.engine.bulk.read_bulk_action import BulkAction
from flowfabric.engine.queries.save_query import SavedQuery
from flowfabric.ids import ExecutionId
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import (
    NamespaceQuery,
    PageQuery,
    check_limit,
    page,
    page_of,
)
from flowfabric.server.problems import invalid
from flowfabric.server.routes.searches import FilterQuery, search_of
from flowfabric.server.table import CONTROL, LARGE, NOTHING, Route, route
from flowfabric.states import BulkActionKind, PublicState, Role, Scope

_PLACE: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})")
B: Final = "/v1/bulk-actions/{bulk_id}"


class BulkFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which executions: as the parameters of `GET /v1/executions`."""

    namespace: str | None = None
    state: list[PublicState] = []
    kind: list[str] = []
    lane: str | None = None
    tag: list[str] = []
    flow: UUID | None = None
    worker: str | None = None
    key: str | None = None
    reason: str | None = None
    min_attempts: int = 0
    since: datetime | None = None
    before: datetime | None = None
    within: float | None = None
    divergent: bool = False
    patch_missing: str | None = None


class BulkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is done, to what the filter finds or to these executions, and why."""

    action: BulkActionKind
    reason: str
    filter: BulkFilter | None = None
    execution_ids: list[ExecutionId] = []
    arguments: BulkArguments | None = None
    preview: bool = False
    """Only count what would change; with a filter."""


class StopRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Why."""

    reason: str | None = None


class BulkListQuery(NamespaceQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which namespace, and how many."""

    limit: int = 100


class TargetsQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which executions of the action: all, or those with one result."""

    result: str | None = None


class BulkActions(msgspec.Struct, frozen=True, kw_only=True):
    """The newest first."""

    items: list[BulkAction]


class QueryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A search to save: its name, and the parameters of its URL."""

    name: str
    query: str
    shared: bool = False
    namespace: str | None = None


class Queries(msgspec.Struct, frozen=True, kw_only=True):
    """By name."""

    items: list[SavedQuery]


async def start_bulk_action(call: ApiCall, body: BulkRequest) -> Reply:
    """Change up to 100,000 executions in batches; `preview` only counts them (200)."""
    search = None
    if body.filter is not None:
        search = search_of(call, FilterQuery(**msgspec.structs.asdict(body.filter)))
    if body.preview:
        if search is None:
            raise invalid("filter", "must be given for a preview")
        found = await call.engine.preview_bulk_action(body.action, search, arguments=body.arguments)
        return Reply(value=found, status=200)
    if search is None:
        await call.check_executions(body.execution_ids)
    started = await call.engine.start_bulk_action(
        body.action,
        search=search,
        executions=body.execution_ids,
        arguments=body.arguments,
        reason=body.reason,
        actor=call.actor,
        namespace=call.only(None if body.filter is None else body.filter.namespace),
    )
    return Reply(
        value=started, status=201, headers={"location": f"/v1/bulk-actions/{started.bulk_id}"}
    )


async def list_bulk_actions(call: ApiCall, query: BulkListQuery) -> BulkActions:
    """The changes of many executions of the last 30 days, the newest first."""
    found = await call.engine.list_bulk_actions(
        namespace=call.only(query.namespace), limit=check_limit(query.limit)
    )
    return BulkActions(items=found)


async def read_bulk_action(call: ApiCall) -> BulkAction:
    """How far a change of many executions is."""
    return await _visible(call)


async def _visible(call: ApiCall) -> BulkAction:
    bulk_id: UUID = call.uuid("bulk_id")
    return await call.engine.read_bulk_action(bulk_id, namespace=call.only())


async def list_bulk_targets(call: ApiCall, query: TargetsQuery) -> Reply:
    """What became of each execution."""
    after = (-1, 0)
    if query.cursor is not None:
        place = _PLACE.fullmatch(query.cursor)
        if place is None:
            raise invalid("cursor", "is not a cursor of this list")
        after = (int(place[1]), int(place[2]))
    found = await call.engine.list_bulk_targets(
        (await _visible(call)).bulk_id,
        result=query.result,
        after=after,
        limit=check_limit(query.limit),
    )
    end = None if found.next_after is None else "{}.{}".format(*found.next_after)
    return page(call, BulkTarget, found.targets, end, query)


async def stop_bulk_action(call: ApiCall, body: StopRequest) -> BulkAction:
    """End the change after the batch that runs."""
    return await call.engine.stop_bulk_action(
        call.uuid("bulk_id"), namespace=call.only(), actor=call.actor, reason=body.reason
    )


async def save_query(call: ApiCall, body: QueryRequest) -> SavedQuery:
    """Save a search by a name; one of the same name is replaced."""
    return await call.engine.save_query(
        body.name,
        body.query,
        owner=call.actor,
        namespace=call.namespace(body.namespace),
        shared=body.shared,
    )


async def list_queries(call: ApiCall, query: NamespaceQuery) -> Queries:
    """The searches that the caller has saved, and those that are shared."""
    found = await call.engine.list_queries(
        owner=call.actor, namespace=call.namespace(query.namespace)
    )
    return Queries(items=found)


async def forget_query(call: ApiCall, query: NamespaceQuery) -> None:
    """Delete a saved search: an own one; an admin deletes any."""
    await call.engine.forget_query(
        call.uuid("query_id"),
        owner=None if call.principal.role is Role.ADMIN else call.actor,
        namespace=call.namespace(query.namespace),
    )


def _read(path: str, handler: Any, answers: Any, **more: Any) -> Route:
    return route("GET", path, handler, scope=Scope.READ, answers={200: answers}, **more)


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "POST",
        "/v1/bulk-actions",
        start_bulk_action,
        scope=Scope.OPERATE,
        limit=LARGE,
        body=BulkRequest,
        answers={201: BulkAction, 200: BulkPreview},
    ),
    _read("/v1/bulk-actions", list_bulk_actions, BulkActions, query=BulkListQuery),
    _read(B, read_bulk_action, BulkAction),
    _read(B + "/executions", list_bulk_targets, page_of(BulkTarget), query=TargetsQuery),
    route(
        "POST",
        B + "/stop",
        stop_bulk_action,
        scope=Scope.OPERATE,
        limit=CONTROL,
        body=StopRequest,
        answers={200: BulkAction},
    ),
    route(
        "POST",
        "/v1/queries",
        save_query,
        scope=Scope.WRITE,
        limit=CONTROL,
        body=QueryRequest,
        answers={201: SavedQuery},
    ),
    _read("/v1/queries", list_queries, Queries, query=NamespaceQuery),
    route(
        "DELETE",
        "/v1/queries/{query_id}",
        forget_query,
        scope=Scope.WRITE,
        query=NamespaceQuery,
        answers={204: NOTHING},
    ),
)
