"""All members of a flow, whatever their number."""

from __future__ import annotations

from uuid import UUID

from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.list_flow_members import FlowMember
from flowfabric.ids import ExecutionId


async def every_member(engine: Engine, flow_id: UUID) -> list[FlowMember]:
    """The members by id, page after page; empty where there is no such flow."""
    members: list[FlowMember] = []
    cursor: ExecutionId | None = None
    while True:
        page = await engine.list_flow_members(flow_id, cursor=cursor)
        members += page.members
        cursor = page.next_cursor
        if cursor is None:
            return members
