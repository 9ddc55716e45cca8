"""Reads all members of a flow, page by page."""

from __future__ import annotations

from uuid import UUID

from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.list_flow_members import FlowMember
from flowfabric.ids import ExecutionId


async def list_all_members(engine: Engine, flow_id: UUID) -> list[FlowMember]:
    """Every member of the flow, ordered by id; empty if the flow does not exist."""
    members: list[FlowMember] = []
    cursor: ExecutionId | None = None
    while True:
        page = await engine.list_flow_members(flow_id, cursor=cursor)
        members += page.members
        cursor = page.next_cursor
        if cursor is None:
            return members
