"""An execution in its flow: its parent and children, what it waits for, and a small picture."""

from __future__ import annotations

from typing import Final

import msgspec

from flowfabric.dashboard.flows.drawing import FlowPicture, PictureOptions, picture
from flowfabric.dashboard.graph.model import address
from flowfabric.dashboard.visit import Visit
from flowfabric.engine.executions.describe_execution import ExecutionSnapshot
from flowfabric.ids import ExecutionId
from flowfabric.states import PublicState, WaitsAs

_PLACES: Final = ("parent", "waits for", "waited for by", "child")
_DRAWN: Final = 300
"""Members of a flow that is read for a small picture; the page of a larger one has its graph."""
_NEAR: Final = 24
"""Nodes that a small picture has at most."""


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Another member of the flow: its parent, a child, or what it waits for."""

    execution_id: ExecutionId
    label: str
    public_state: PublicState
    where: str


async def neighbours_of(visit: Visit, found: ExecutionSnapshot) -> list[Neighbour]:
    """Its parent and children, what it waits for, and what waits for it."""
    if found.flow_id is None:
        return []
    engine, own = visit.engine, found.execution_id
    above = await engine.list_edges(found.flow_id, incoming_to=own)
    below = await engine.list_edges(found.flow_id, outgoing_from=own)
    children = WaitsAs.CHILDREN
    places = {
        each.upstream: "child" if each.waits_as is children else "waits for" for each in above
    }
    for each in below:
        is_parent = each.waits_as is children
        places[each.downstream] = "parent" if is_parent else "waited for by"
    places.pop(own, None)
    shown: list[Neighbour] = []
    cursor = None
    while len(shown) < 50:
        page = await engine.list_flow_members(found.flow_id, cursor=cursor)
        shown += [
            Neighbour(
                execution_id=each.execution_id,
                label=each.name or each.execution_kind,
                public_state=each.public_state,
                where=places[each.execution_id],
            )
            for each in page.members
            if each.execution_id in places
        ]
        cursor = page.next_cursor
        if cursor is None:
            break
    return sorted(shown, key=lambda each: _PLACES.index(each.where))


async def near_in_flow(visit: Visit, found: ExecutionSnapshot) -> FlowPicture | None:
    """The execution and the members beside it; None if it is alone, or there are too many."""
    if found.flow_id is None:
        return None
    flow = await visit.engine.describe_flow(found.flow_id)
    if flow is None or flow.members.total > _DRAWN or not flow.edge_count:
        return None
    read = await visit.site.flows.read(found.flow_id, visit.now)
    if read is None:
        return None
    own, flow_path = address(found.execution_id), f"/flows/{found.flow_id}"
    drawn = await picture(
        read,
        PictureOptions(focus=(own,), depth=1, chosen=own),
        visit.site.layouts,
        member_href=lambda key: visit.url(f"/executions/{key}"),
        stack_href=lambda key: visit.url(flow_path, open=key),
    )
    return drawn if 1 < drawn.shown <= _NEAR else None
