"""What has changed, for everybody who looks: one reader per outbox, whoever looks.

Viewers watch topics. An event makes the topics of its execution dirty; a beat makes those dirty of
which no event tells. A viewer with dirty topics is told once every 250 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final

from flowfabric.engine.engine import Engine
from flowfabric.engine.events.cursor import FROM_NOW
from flowfabric.engine.events.subscribe import Subscription
from flowfabric.errors import FlowFabricError
from flowfabric.ids import ExecutionId
from flowfabric.server.asgi import cancel_all

log: Final = logging.getLogger("flowfabric.dashboard")
BEAT: Final = 2.0
TOLD_EVERY: Final = 0.25
LINGERS: Final = 30.0
"""Seconds after the last viewer has left until nothing is read any more."""
MOST_TOPICS: Final = 32
BEATEN: Final = frozenset(
    {"list", "overview", "lanes", "workers", "flows", "schedules", "budgets", "inbox", "events"}
)
"""Topics that the beat makes dirty."""
RESYNC: Final = "*"


def execution_topic(execution_id: ExecutionId) -> str:
    """The topic of one execution."""
    return f"x.{execution_id.partition_key}.{execution_id.uuid}"


class Viewer:
    """One open page: what it watches, and what has changed since it was told last."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self._dirty: set[str] = set()
        self._woken = asyncio.Event()

    def touch(self, topics: set[str] | frozenset[str]) -> None:
        """These have changed; those that are not watched are dropped."""
        found = (self.topics & topics) | ({RESYNC} & topics)
        if found:
            self._dirty |= found
            self._woken.set()

    async def changed(self) -> set[str]:
        """Wait until something has changed, gather for a moment, and give it."""
        await self._woken.wait()
        await asyncio.sleep(TOLD_EVERY)
        self._woken.clear()
        found, self._dirty = self._dirty, set()
        return found


class Pulse:
    """Follows the outboxes while somebody looks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._viewers: set[Viewer] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.TimerHandle | None = None

    @property
    def viewers(self) -> int:
        """How many look."""
        return len(self._viewers)

    @contextlib.contextmanager
    def watching(self, topics: frozenset[str]) -> Generator[Viewer]:
        """A viewer of these topics, inside the block."""
        viewer = Viewer(topics)
        self._viewers.add(viewer)
        self._start()
        try:
            yield viewer
        finally:
            self._viewers.discard(viewer)
            if not self._viewers:
                loop = asyncio.get_running_loop()
                self._closing = loop.call_later(LINGERS, self._stop)

    async def close(self) -> None:
        """Nothing is read any more."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        tasks, self._tasks = self._tasks, []
        await cancel_all(tasks)

    def _start(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if self._tasks:
            return
        engine = self._engine
        self._tasks = [
            asyncio.create_task(self._follow(engine.subscribe_completions)),
            asyncio.create_task(self._follow(engine.subscribe_lease_history)),
            asyncio.create_task(self._follow(engine.subscribe_operator_events)),
            asyncio.create_task(self._follow(engine.subscribe_signal_delivery)),
            asyncio.create_task(self._beat()),
        ]

    def _stop(self) -> None:
        self._closing = None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()

    async def _follow(self, subscribe: Callable[..., Awaitable[Subscription[Any]]]) -> None:
        """Read one outbox for good; after a cut from its cursor, and everybody reads anew."""
        cursor = FROM_NOW
        while True:
            try:
                async with await subscribe(cursor) as events:
                    async for event in events:
                        cursor = event.cursor
                        self._touch(_topics(event))
            except FlowFabricError as error:
                log.warning("events are read anew: %s", error)
            await asyncio.sleep(1.0)
            self._touch({RESYNC})

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            self._touch(BEATEN | {each for v in self._viewers for each in v.topics if "." in each})

    def _touch(self, topics: set[str] | frozenset[str]) -> None:
        for viewer in self._viewers:
            viewer.touch(topics)


def _topics(event: Any) -> set[str]:
    """The topics that the event makes dirty."""
    found: set[str] = {"events"}
    execution_id: ExecutionId | None = event.execution_id
    if execution_id is not None:
        found.add(execution_topic(execution_id))
    else:
        found |= {"lanes", "schedules", "budgets"}
    flow_id = getattr(event, "flow_id", None)
    if flow_id is not None:
        found.add(f"f.{flow_id}")
    return found
