"""The states of the members of a flow as they change: one read a second for all viewers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Any, Final, TypeAlias
from uuid import UUID

from flowfabric.engine.engine import Engine
from flowfabric.engine.flows.read_flow_states import FlowStates
from flowfabric.errors import FlowFabricError
from flowfabric.server.asgi import cancel_all
from flowfabric.states import PublicState

log: Final = logging.getLogger("flowfabric.dashboard")
EVERY: Final = 1.0
EVERY_SETTLED: Final = 5.0
"""Seconds between reads of a flow whose members have all ended."""

StatesChange: TypeAlias = dict[str, Any]
"""`{"rev": 17, "s": [[12, "active"], ...]}`: the revision, and members that are in a new state."""


class FlowWatch:
    """Follows the flows that somebody looks at."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._watched: dict[UUID, _Watched] = {}

    @property
    def watched(self) -> int:
        """How many flows are looked at."""
        return len(self._watched)

    async def changes(self, flow_id: UUID) -> AsyncGenerator[StatesChange]:
        """The states of all members, then those that have changed, until the caller stops."""
        watched = self._watched.get(flow_id)
        if watched is None:
            watched = self._watched[flow_id] = _Watched()
            watched.task = asyncio.create_task(self._follow(flow_id, watched))
        viewer = _Viewer(watched)
        watched.viewers.add(viewer)
        try:
            while True:
                yield await viewer.next()
        finally:
            watched.viewers.discard(viewer)
            if not watched.viewers and watched.task is not None:
                watched.task.cancel()
                if self._watched.get(flow_id) is watched:
                    del self._watched[flow_id]

    async def close(self) -> None:
        """Nothing is read any more."""
        tasks = [each.task for each in self._watched.values() if each.task is not None]
        self._watched.clear()
        await cancel_all(tasks)

    async def _follow(self, flow_id: UUID, watched: _Watched) -> None:
        while True:
            with contextlib.suppress(FlowFabricError):
                found = await self._engine.read_flow_states(flow_id)
                if found is not None and found != watched.states:
                    watched.states = found
                    for viewer in watched.viewers:
                        viewer.woken.set()
            settled = watched.states is not None and _is_settled(watched.states)
            await asyncio.sleep(EVERY_SETTLED if settled else EVERY)


class _Watched:
    """One flow that is looked at."""

    def __init__(self) -> None:
        self.states: FlowStates | None = None
        self.viewers: set[_Viewer] = set()
        self.task: asyncio.Task[None] | None = None


class _Viewer:
    """Somebody who looks at a flow, and what they were told last."""

    def __init__(self, watched: _Watched) -> None:
        self._watched = watched
        self._told: FlowStates | None = None
        self.woken = asyncio.Event()
        if watched.states is not None:
            self.woken.set()

    async def next(self) -> StatesChange:
        await self.woken.wait()
        self.woken.clear()
        found = self._watched.states
        assert found is not None
        change = difference(self._told, found)
        self._told = found
        return change


def difference(before: FlowStates | None, after: FlowStates) -> StatesChange:
    """What a page that knows `before` must be told; all states after a change of the graph."""
    known: list[PublicState | None] = [None] * len(after.states)
    if before is not None and before.graph_revision == after.graph_revision:
        known[: len(before.states)] = before.states
    return {
        "rev": after.graph_revision,
        "s": [
            [number, state.value]
            for number, (state, old) in enumerate(zip(after.states, known, strict=False))
            if state is not old
        ],
    }


def _is_settled(states: FlowStates) -> bool:
    return all(state.is_terminal for state in states.states)
