"""A flow with its members and edges: read at most once a second, for everybody who looks at it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from flowfabric.dashboard.graph import Graph, graph_of
from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.describe_flow import FlowSnapshot
from flowfabric.engine.flows.edge import EdgeSnapshot
from flowfabric.engine.flows.list_flow_members import FlowMember
from flowfabric.ids import ExecutionId

KEPT: Final = 1.0
"""Seconds for which a flow that was read is shared."""
_LONGEST: Final = 10.0
"""Seconds after which a read that goes on is not waited for any more."""
_MOST_KEPT: Final = 64


class FlowRead(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as it was read; a number of the graph is an index of `members`."""

    flow: FlowSnapshot
    members: Sequence[FlowMember]
    edges: Sequence[EdgeSnapshot]
    graph: Graph

    def number_of(self, execution_id: ExecutionId) -> int | None:
        """The number of a member; None for another execution."""
        for number, member in enumerate(self.members):
            if member.execution_id == execution_id:
                return number
        return None


class FlowReader:
    """Reads flows; equal requests within a second share an answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: dict[UUID, tuple[float, asyncio.Future[FlowRead | None]]] = {}

    async def read(self, flow_id: UUID, now: datetime) -> FlowRead | None:
        """The flow with its members by id; None if there is no such flow."""
        at = time.monotonic()
        self._kept = {
            each: (ends, found) for each, (ends, found) in self._kept.items() if at < ends
        }
        kept = self._kept.get(flow_id)
        if kept is not None:
            return await asyncio.shield(kept[1])
        while len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        reading = asyncio.ensure_future(self._read(flow_id, now))
        self._kept[flow_id] = at + _LONGEST, reading
        try:
            found = await asyncio.shield(reading)
        except BaseException:
            self._keep(flow_id, reading, 0.0)
            raise
        self._keep(flow_id, reading, KEPT)
        return found

    def _keep(
        self, flow_id: UUID, reading: asyncio.Future[FlowRead | None], seconds: float
    ) -> None:
        """Share the answer for so long from now on, unless it was forgotten meanwhile."""
        kept = self._kept.get(flow_id)
        if kept is not None and kept[1] is reading:
            self._kept[flow_id] = time.monotonic() + seconds, reading

    def forget(self, flow_id: UUID) -> None:
        """It was changed here: the next read is a new one."""
        self._kept.pop(flow_id, None)

    async def _read(self, flow_id: UUID, now: datetime) -> FlowRead | None:
        flow, members, edges = await asyncio.gather(
            self._engine.describe_flow(flow_id),
            self._members(flow_id),
            self._engine.list_edges(flow_id),
        )
        if flow is None:
            return None
        return FlowRead(
            flow=flow, members=members, edges=edges, graph=graph_of(flow, members, edges, now)
        )

    async def _members(self, flow_id: UUID) -> list[FlowMember]:
        members: list[FlowMember] = []
        cursor: ExecutionId | None = None
        while True:
            page = await self._engine.list_flow_members(flow_id, cursor=cursor)
            members += page.members
            cursor = page.next_cursor
            if cursor is None:
                return members
