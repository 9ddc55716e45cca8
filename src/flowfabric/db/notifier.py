"""Notifications of a process: the first of a topic at once, those that follow it together.

NOTIFY makes the commits of the whole database wait for one another. A statement that is a
transaction of its own therefore notifies a topic only if this process has not done so a moment ago.
Otherwise one short transaction, which waits for no flush, notifies for all such statements. If that
is lost, the processes that wait find what they wait for at their next poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import ContextVar
from typing import Final, LiteralString

from flowfabric.db.rows import Connection, execute
from flowfabric.errors import FlowFabricError

PAUSE: Final = 0.02
"""Seconds between two notifications of one topic by one process."""

NOTIFY: Final[LiteralString] = """
-- db.notifier
SELECT set_config('synchronous_commit', 'off', true),
       (SELECT count(ff.wake(topic)) FROM unnest(%(topics)s::text[]) AS topic)
"""

_of_statement: Final[ContextVar[tuple[Notifier, set[str]] | None]] = ContextVar(
    "flowfabric_notifier", default=None
)


class Notifier:
    """Which topics were notified when, and the notifications that are still to be sent."""

    def __init__(self, send: Callable[[Sequence[str]], Awaitable[None]]) -> None:
        self._send = send
        self._sent_at: dict[str, float] = {}
        self._topics: set[str] = set()
        self._sending: asyncio.Task[None] | None = None

    def at_once(self, topic: str) -> bool:
        """True if the topic was not notified a moment ago; then it counts as notified now."""
        now = time.monotonic()
        if now - self._sent_at.get(topic, 0.0) < PAUSE:
            return False
        self._sent_at[topic] = now
        return True

    def soon(self, topics: set[str]) -> None:
        """Notify these topics within `PAUSE`, each once however often it was named."""
        if topics:
            self._topics |= topics
            if self._sending is None or self._sending.done():
                self._sending = asyncio.create_task(self._send_topics(), name="flowfabric notifier")

    async def _send_topics(self) -> None:
        while self._topics:
            await asyncio.sleep(PAUSE)
            topics, self._topics = self._topics, set()
            self._sent_at |= dict.fromkeys(topics, time.monotonic())
            with contextlib.suppress(FlowFabricError):  # found by the next poll
                await self._send(sorted(topics))

    def close(self) -> None:
        """Forget what was not sent."""
        if self._sending is not None:
            self._sending.cancel()


@contextlib.contextmanager
def notifying_later(notifier: Notifier) -> Generator[None]:
    """The block is one statement that is its own transaction; its notifications may wait."""
    topics: set[str] = set()
    token = _of_statement.set((notifier, topics))
    try:
        yield
    finally:
        _of_statement.reset(token)
        notifier.soon(topics)


def notifies(topic: str) -> bool:
    """Is the statement that is about to run to notify the topic itself?

    Always, unless the statement runs in `notifying_later`: a transaction may be committed long
    after this statement, and only its own notification comes after that.
    """
    found = _of_statement.get()
    if found is None:
        return True
    notifier, topics = found
    if notifier.at_once(topic):
        return True
    topics.add(topic)
    return False


async def notify(conn: Connection, topics: Sequence[str]) -> None:
    """Notify the topics that have a waiter; does not wait until the commit is flushed."""
    await execute(conn, NOTIFY, topics=list(topics))
