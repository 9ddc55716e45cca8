"""What has changed, for everybody who looks: one reader per outbox for all of them.

Viewers watch topics. An event makes the topics of its execution dirty; a beat makes those dirty of
which no event tells. A viewer with dirty topics is told once every 250 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
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

    def touch(self, topic: str) -> None:
        """It has changed."""
        self._dirty.add(topic)
        self._woken.set()

    async def changed(self) -> set[str]:
        """Wait until something has changed, gather for a moment, and give it."""
        await self._woken.wait()
        await asyncio.sleep(TOLD_EVERY)
        self._woken.clear()
        found, self._dirty = self._dirty, set()
        return found


class _Readers:
    """Tasks that run while somebody needs what they read, and a while longer."""

    def __init__(self, *loops: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._loops = loops
        self._needed = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.TimerHandle | None = None

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        """They run at least as long as the block."""
        self._needed += 1
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if not self._tasks:
            self._tasks = [asyncio.create_task(loop()) for loop in self._loops]
        try:
            yield
        finally:
            self._needed -= 1
            if not self._needed:
                loop = asyncio.get_running_loop()
                self._closing = loop.call_later(LINGERS, self._stop)

    async def close(self) -> None:
        """Nothing is read any more."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        tasks, self._tasks = self._tasks, []
        await cancel_all(tasks)

    def _stop(self) -> None:
        self._closing = None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()


class Pulse:
    """Follows the outboxes while somebody looks at what their events change.

    A worker that drains a queue writes thousands of events a second. They are read only
    while somebody watches executions, flows or events; other topics live by the beat.
    """

    def __init__(self, engine: Engine) -> None:
        self._viewers: set[Viewer] = set()
        self._watching: dict[str, set[Viewer]] = {}
        """The viewers of each topic: an event costs nothing for those who watch something else."""
        self._for_all = _Readers(
            partial(self._follow, engine.subscribe_operator_events), self._beat
        )
        self._for_executions = _Readers(
            partial(self._follow, engine.subscribe_completions),
            partial(self._follow, engine.subscribe_lease_history),
            partial(self._follow, engine.subscribe_signal_delivery),
        )

    @property
    def viewers(self) -> int:
        """How many look."""
        return len(self._viewers)

    @contextlib.contextmanager
    def watching(self, topics: frozenset[str]) -> Generator[Viewer]:
        """A viewer of these topics, inside the block."""
        viewer = Viewer(topics)
        self._viewers.add(viewer)
        for topic in topics:
            self._watching.setdefault(topic, set()).add(viewer)
        with contextlib.ExitStack() as readers:
            readers.enter_context(self._for_all.running())
            if any(map(_is_of_executions, topics)):
                readers.enter_context(self._for_executions.running())
            try:
                yield viewer
            finally:
                self._viewers.discard(viewer)
                for topic in topics:
                    self._watching[topic].discard(viewer)
                    if not self._watching[topic]:
                        del self._watching[topic]

    async def close(self) -> None:
        """Nothing is read any more."""
        await self._for_all.close()
        await self._for_executions.close()

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
            for viewer in self._viewers:
                viewer.touch(RESYNC)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            self._touch({each for each in self._watching if each in BEATEN or "." in each})

    def _touch(self, topics: set[str]) -> None:
        """These have changed; those that nobody watches are dropped."""
        for topic in topics:
            for viewer in self._watching.get(topic, ()):
                viewer.touch(topic)


def _is_of_executions(topic: str) -> bool:
    """Do events of single executions make the topic dirty?"""
    return topic == "events" or topic.startswith(("x.", "f."))


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
