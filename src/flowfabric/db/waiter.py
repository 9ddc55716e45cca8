"""Waiting for changes in the database: woken by NOTIFY where that works, polling always.

The owner of a waiter looks, and waits when its look found nothing:

    async with Waiter(pool, listener, ["completion"], name="client", poll=2.0) as waiter:
        while not await look():
            await waiter.wait()

NOTIFY is sent only for a topic that has a registered waiter, and it is a hint: a notification that
is lost costs its waiter one `poll`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import Iterable
from typing import Final, LiteralString, Self

from flowfabric.db.listen import Listener, signalled
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection, execute
from flowfabric.db.transaction import run
from flowfabric.errors import FlowFabricError

log: Final = logging.getLogger("flowfabric.waiter")
WAITING_FOR: Final = 15.0
"""For how many seconds a registration counts; a waiter renews it in half of that time."""

_FIRST_PAUSE: Final = 0.02
_LAST_PAUSE: Final = 1.0
_BUSY_AFTER: Final = 0.25
_CLOSE_WITHIN: Final = 2.0

REGISTER: Final[LiteralString] = """
-- db.waiter: register
INSERT INTO ff.waiter (topic, waiter_id, waiting_until_ms)
SELECT topic, %(waiter_id)s, ff.now_ms() + %(ttl_ms)s FROM unnest(%(topics)s::text[]) AS topic
    ON CONFLICT (topic, waiter_id) DO UPDATE SET waiting_until_ms = EXCLUDED.waiting_until_ms
"""

DEREGISTER: Final[LiteralString] = """
-- db.waiter: deregister
DELETE FROM ff.waiter WHERE waiter_id = %(waiter_id)s
"""


async def register(conn: Connection, waiter_id: str, topics: list[str]) -> None:
    """From now on, for `WAITING_FOR` seconds, a change of one of the topics is notified."""
    await execute(
        conn, REGISTER, waiter_id=waiter_id, topics=topics, ttl_ms=round(WAITING_FOR * 1000)
    )


async def deregister(conn: Connection, waiter_id: str) -> None:
    """Nothing is notified for this waiter any more."""
    await execute(conn, DEREGISTER, waiter_id=waiter_id)


class Waiter:
    """Tells one owner when to look again at what its topics stand for.

    No signal is lost between a look and the wait after it: the event is cleared before a look,
    never after one, and a waiter that was not registered during the last look sends its owner to
    look once more before it sleeps. A database in trouble is logged and polled with growing pauses.
    """

    def __init__(
        self,
        pool: Pool,
        listener: Listener,
        topics: Iterable[str],
        *,
        name: str,
        poll: float,
        first_pause: float = _FIRST_PAUSE,
        gather: float = 0.0,
    ) -> None:
        """Look every `poll` seconds while listening, else after `first_pause` and ever more.

        A signal is passed on `gather` seconds late, so that one look finds many changes. `name` is
        how the registration begins.
        """
        self._pool, self._listener = pool, listener
        self._topics = list(topics)
        self._waiter_id = f"{name}-{secrets.token_hex(6)}"
        self._poll, self._first_pause, self._gather = poll, first_pause, gather
        self._pause = first_pause
        self._event: asyncio.Event | None = None
        self._idle_at = time.monotonic()
        self._registered_at: float | None = None
        self._connection = 0  # the connection of the listener at the time of the registration
        self._listed = False  # there may be a row of it, even if the answer was lost

    async def close(self) -> None:
        """Listen no more and be deregistered; if that takes too long, the registration expires."""
        if self._event is not None:
            self._listener.unsubscribe(self._event)
            self._event = None
        await self._deregister()

    async def __aenter__(self) -> Self:
        self._signal()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # What the owner does between two looks.

    async def wait(self) -> None:
        """The last look found nothing: return when the owner should look again.

        That is at once after a registration that the last look did not have.
        """
        event = self._signal()
        self._idle_at = time.monotonic()
        if not self._listener.connected.is_set():
            await self.pause()
            return
        if self._registration_is_due():
            try:
                new = await self._register()
            except FlowFabricError as error:
                log.warning("cannot register as waiting, polling instead: %s", error)
                await self.pause()
                return
            if new:
                event.clear()
                return
        await signalled(event, self._poll * random.uniform(0.8, 1.2))
        if self._gather:
            await asyncio.sleep(self._gather)
            event.clear()

    async def pause(self) -> None:
        """The owner cannot rely on being notified: return when signalled, or soon enough.

        Each pause that no signal cuts short doubles the next one, up to a second.
        """
        if not await signalled(self._signal(), self._pause * random.uniform(0.5, 1.0)):
            self._pause = min(self._pause * 2, _LAST_PAUSE)

    def found(self) -> None:
        """The last look found something: pauses are short again."""
        self._pause = self._first_pause

    async def busy(self) -> None:
        """The last look found so much that the owner looks again by itself.

        The waiter is deregistered, so that its topics are not notified in vain; unless its owner
        waited a moment ago, because then it will soon wait again.
        """
        self.found()
        if self._registered_at is not None and time.monotonic() - self._idle_at > _BUSY_AFTER:
            await self._deregister()

    def looking(self) -> None:
        """A look begins, and answers every signal up to now.

        Only for an owner that looks without having waited; `wait` and `pause` do it themselves.
        """
        if self._event is not None:
            self._event.clear()

    def wake(self) -> None:
        """The owner has something new to look for: the wait that runs, or the next one, is over."""
        self._signal().set()

    def _signal(self) -> asyncio.Event:
        """Set by a notification, by a connect of the listener and by `wake`; subscribed once."""
        if self._event is None:
            self._listener.start()
            self._event = self._listener.subscribe(*self._topics)
        return self._event

    # The registration.

    def _registration_is_due(self) -> bool:
        """Was there none, is half of its time over, or may the server have lost it in a crash?"""
        return (
            self._registered_at is None
            or time.monotonic() - self._registered_at > WAITING_FOR / 2
            or self._connection != self._listener.connections
        )

    async def _register(self) -> bool:
        """Be registered; True if there may have been a time without, since the last one."""
        sent_at, connection = time.monotonic(), self._listener.connections
        self._listed = True
        await run(
            self._pool, "register", lambda conn: register(conn, self._waiter_id, self._topics)
        )
        new = (
            self._registered_at is None
            or time.monotonic() - self._registered_at >= WAITING_FOR
            or self._connection != connection
        )
        self._registered_at, self._connection = sent_at, connection
        self._pause = self._first_pause
        return new

    async def _deregister(self) -> None:
        self._registered_at = None
        if not self._listed:
            return
        with contextlib.suppress(FlowFabricError, TimeoutError):  # it expires by itself
            async with asyncio.timeout(_CLOSE_WITHIN):
                await run(self._pool, "deregister", lambda conn: deregister(conn, self._waiter_id))
            self._listed = False
