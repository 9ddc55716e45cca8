"""Flows by what they have in common."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from flowfabric.engine.flows.list_flows import FlowStatus, FlowSummary
from flowfabric.server.call import ApiCall, Reply
from flowfabric.server.pages import NamespacePageQuery, check_limit, page, page_of, tag_of
from flowfabric.server.table import Route, route
from flowfabric.states import Scope


class FlowsQuery(NamespacePageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which flows: those that match everything that is given, the newest first."""

    status: list[FlowStatus] = msgspec.field(default_factory=list[FlowStatus])
    """Any of these."""
    kind: str | None = None
    tag: str | None = None
    """`key=value`"""
    since: datetime | None = None


async def list_flows(call: ApiCall, query: FlowsQuery) -> Reply:
    """Flows, the newest first, a page at a time."""
    found = await call.engine.list_flows(
        cursor=query.cursor,
        limit=check_limit(query.limit),
        namespace=call.only(query.namespace),
        statuses=query.status,
        flow_kind=query.kind,
        tag=tag_of(query.tag),
        created_since=query.since,
    )
    return page(call, FlowSummary, found.flows, found.next_cursor, query)


ROUTES: Final[tuple[Route, ...]] = (
    route(
        "GET",
        "/v1/flows",
        list_flows,
        scope=Scope.READ,
        query=FlowsQuery,
        answers={200: page_of(FlowSummary)},
    ),
)
