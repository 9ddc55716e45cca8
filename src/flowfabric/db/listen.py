"""Wake-ups: one LISTEN connection per process, and always a deadline, because NOTIFY is a hint."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import defaultdict
from collections.abc import Generator
from typing import Any, Final, LiteralString

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection, Moved, execute, fetch_one
from flowfabric.errors import FlowFabricError

log: Final = logging.getLogger("flowfabric.listen")
CHANNEL: Final = "ff_wake"
WAITING_FOR: Final = 15.0

WAIT: Final[LiteralString] = """
-- db.listen: this waiter wants to be woken
INSERT INTO ff.waiter (topic, waiter_id, waiting_until_ms)
SELECT topic, %(waiter_id)s, ff.now_ms() + %(ttl_ms)s FROM unnest(%(topics)s::text[]) AS topic
    ON CONFLICT (topic, waiter_id) DO UPDATE SET waiting_until_ms = EXCLUDED.waiting_until_ms
"""

LEAVE: Final[LiteralString] = """
-- db.listen: this waiter is busy or gone
DELETE FROM ff.waiter WHERE waiter_id = %(waiter_id)s
"""


EXPIRE_WAITERS: Final[LiteralString] = """
-- db.listen: waiters that went without a word
WITH gone AS (        -- long lapsed, passing over rows in use
    SELECT topic, waiter_id FROM ff.waiter WHERE waiting_until_ms < ff.now_ms() - 60000
     LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), swept AS (
    DELETE FROM ff.waiter w USING gone
     WHERE (w.topic, w.waiter_id) = (gone.topic, gone.waiter_id) RETURNING 1
)
SELECT count(*) AS moved FROM swept
"""


async def expire_waiters(conn: Connection, limit: int) -> int:
    """Forget at most `limit` waiters who went without a word."""
    return (await fetch_one(conn, EXPIRE_WAITERS, Moved, limit=limit)).moved


async def wait_for(conn: Connection, waiter_id: str, topics: list[str]) -> None:
    """From now on, for `WAITING_FOR` seconds, a change of `topics` is worth a NOTIFY."""
    await execute(conn, WAIT, waiter_id=waiter_id, topics=topics, ttl_ms=round(WAITING_FOR * 1000))


async def leave(conn: Connection, waiter_id: str) -> None:
    """Nobody needs to notify this waiter."""
    await execute(conn, LEAVE, waiter_id=waiter_id)


class Listener:
    """Turns notifications into events of the running loop; reconnects by itself.

    While the connection is down, or where LISTEN is off, a wait still returns at its timeout:
    whoever waits looks again, so a lost notification costs time and nothing else.
    """

    def __init__(self, config: DatabaseConfig) -> None:
        self._config = config
        self._bells: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None
        self.connected = asyncio.Event()

    def start(self) -> None:
        if self._config.listen and not self._config.pooler and self._task is None:
            self._task = asyncio.create_task(self._listen(), name="flowfabric listener")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=2.0)
            self._task = None

    @contextlib.contextmanager
    def bell(self, *topics: str) -> Generator[asyncio.Event]:
        """An event that is set whenever one of the topics is notified."""
        event = asyncio.Event()
        for topic in topics:
            self._bells[topic].add(event)
        try:
            yield event
        finally:
            for topic in topics:
                self._bells[topic].discard(event)
                if not self._bells[topic]:
                    del self._bells[topic]

    def _ring(self, _conn: Any, _pid: int, _channel: str, topic: object) -> None:
        for event in self._bells.get(str(topic), ()):
            event.set()

    async def _listen(self) -> None:
        pause = 0.1
        while True:
            try:
                conn = await connect(self._config, role="listener")
            except FlowFabricError as error:
                log.warning("cannot listen, polling instead: %s", error)
                await asyncio.sleep(random.uniform(0, pause))
                pause = min(pause * 2, 10.0)
                continue
            pause = 0.1
            lost = asyncio.Event()
            conn.add_termination_listener(lambda _, lost=lost: lost.set())
            try:
                await conn.add_listener(CHANNEL, self._ring)
                self.connected.set()
                self._ring_all()
                await lost.wait()
                log.warning("the listening connection was lost; reconnecting")
            except Exception as error:
                log.warning("listening failed: %s", error)
            finally:
                self.connected.clear()
                conn.terminate()

    def _ring_all(self) -> None:
        """Whatever was notified while nobody listened is looked for now."""
        for events in self._bells.values():
            for event in events:
                event.set()


async def rung(bell: asyncio.Event, timeout: float) -> bool:
    """Wait for the bell, at most `timeout` seconds; True if it rang. Clears it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await bell.wait()
    was_set = bell.is_set()
    bell.clear()
    return was_set
