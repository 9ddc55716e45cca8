"""Notifications: one LISTEN connection per process, which sets asyncio events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import defaultdict
from typing import Any, Final, LiteralString

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.errors import FlowFabricError

log: Final = logging.getLogger("flowfabric.listen")
CHANNEL: Final = "ff_wake"

SESSION_PID: Final[LiteralString] = """
-- db.listen: which server process listens
SELECT pg_backend_pid()
"""


class Listener:
    """Sets asyncio events when their topics are notified; reconnects by itself.

    Waiters have timeouts and poll, so a lost notification delays them but loses no work.
    """

    def __init__(self, config: DatabaseConfig) -> None:
        self._config = config
        self._subscribed: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self.connected = asyncio.Event()
        self.connections = 0
        """How often it has connected; a higher number means that the server may have restarted."""
        self.session_pid: int | None = None
        """The server process of the listening session, while there is one."""

    @property
    def enabled(self) -> bool:
        """Does the configuration allow to listen? It does not work behind a pooler."""
        return self._config.listen and not self._config.direct().pooler

    @property
    def is_started(self) -> bool:
        """Is it listening, or trying to?"""
        return self._task is not None

    def start(self) -> None:
        """Start listening, unless the configuration disables it; a second call has no effect."""
        if self.enabled and self._task is None:
            self._task = asyncio.create_task(self._listen(), name="flowfabric listener")

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=2.0)
            self._task = None

    def subscribe(self, *topics: str) -> asyncio.Event:
        """An event that is set when one of the topics is notified, and at every connect."""
        event = asyncio.Event()
        for topic in topics:
            self._subscribed[topic].add(event)
        return event

    def unsubscribe(self, event: asyncio.Event) -> None:
        """Stop setting the event."""
        for topic, events in tuple(self._subscribed.items()):
            events.discard(event)
            if not events:
                del self._subscribed[topic]

    def _notified(self, _conn: Any, _pid: int, _channel: str, topic: object) -> None:
        for event in self._subscribed.get(str(topic), ()):
            event.set()

    async def _listen(self) -> None:
        pause, warned = 0.1, False
        while True:
            try:
                conn = await connect(self._config, role="listener")
            except FlowFabricError as error:
                log.warning("cannot listen, polling instead: %s", error)
                warned = True
                await asyncio.sleep(random.uniform(0, pause))
                pause = min(pause * 2, 10.0)
                continue
            pause = 0.1
            lost = asyncio.Event()
            conn.add_termination_listener(lambda _, lost=lost: lost.set())
            try:
                # The driver's own answer may be a number that a session pooler made up.
                self.session_pid = await conn.fetchval(SESSION_PID)
                await conn.add_listener(CHANNEL, self._notified)
                self.connections += 1
                self.connected.set()
                self._signal_all()
                if warned:
                    log.info("listening again")
                warned = True
                await lost.wait()
                log.warning("the listening connection was lost; reconnecting")
            except Exception as error:
                log.warning("listening failed: %s", error)
                warned = True
            finally:
                self.connected.clear()
                self.session_pid = None
                conn.terminate()

    def _signal_all(self) -> None:
        """Notifications were missed while disconnected: every subscriber must query again."""
        for events in self._subscribed.values():
            for event in events:
                event.set()


async def signalled(event: asyncio.Event, timeout: float | None) -> bool:
    """Wait for the event, at most `timeout` seconds if given, and clear it; True if it was set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await event.wait()
    was_set = event.is_set()
    event.clear()
    return was_set
