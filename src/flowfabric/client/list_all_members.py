"""Reads all members of a flow, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from flowfabric.app.flow import member_uuid
from flowfabric.ids import ExecutionId

if TYPE_CHECKING:
    from flowfabric.engine.flows.list_flow_members import FlowMember
    from flowfabric.remote.engine_like import EngineLike


async def list_all_members(engine: EngineLike, flow_id: UUID) -> list[FlowMember]:
    """Every member of the flow; empty if the flow does not exist.

    The members of a drawn flow come first, in the order in which they were added; children of
    handlers, and members with ids of their own, follow by id.
    """
    members: list[FlowMember] = []
    cursor: ExecutionId | None = None
    while True:
        page = await engine.list_flow_members(flow_id, cursor=cursor)
        members += page.members
        cursor = page.next_cursor
        if cursor is None:
            break
    drawn = {member_uuid(flow_id, number): number for number in range(len(members))}
    return sorted(members, key=lambda each: drawn.get(each.execution_id.uuid, len(drawn)))
