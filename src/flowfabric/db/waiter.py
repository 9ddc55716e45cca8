"""Waiting for changes in the database: by NOTIFY where that works, and always by polling.

The owner of a waiter queries, and waits when the query found nothing:

    async with Waiter(pool, listener, ["completion"], name="client", poll=2.0) as waiter:
        while not await query():
            await waiter.wait()

NOTIFY is sent only for a topic that has a registered waiter. It is a hint: after a lost
notification the owner queries up to `poll` seconds late.
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
"""Seconds until a registration expires; a waiter renews it after half of that time."""

_FIRST_PAUSE: Final = 0.02
_LAST_PAUSE: Final = 1.0
_BUSY_AFTER: Final = 0.25
_CLOSE_WITHIN: Final = 2.0
_SETTLED_AFTER: Final = 0.2
"""Seconds from a new registration to a query that finds what its transactions did not notify."""

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
    """Changes of the topics are notified for the next `WAITING_FOR` seconds."""
    await execute(
        conn, REGISTER, waiter_id=waiter_id, topics=topics, ttl_ms=round(WAITING_FOR * 1000)
    )


async def deregister(conn: Connection, waiter_id: str) -> None:
    """Changes are no longer notified for this waiter."""
    await execute(conn, DEREGISTER, waiter_id=waiter_id)


class Waiter:
    """Tells its owner when to query again, because one of the topics may have changed.

    No signal is lost between a query and the `wait` after it: the event is cleared before a query,
    never after it, and a waiter that was not registered during the last query lets its owner query
    once more before it sleeps. A transaction that looked for waiters just before the registration,
    and committed after that query, notified nobody: so the first sleep is short, and the owner
    queries again. Errors of the database are logged, and pauses then grow.
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
        """Query every `poll` seconds while listening, else after `first_pause` and growing pauses.

        `wait` returns `gather` seconds after a signal, so that one query finds many changes. `name`
        is the prefix of the registration.
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
        self._settled = True  # what was not notified because of a new registration was queried
        self._listed = False  # the row may exist, even if the answer was lost

    async def close(self) -> None:
        """Unsubscribe and deregister; if that takes too long, the registration expires."""
        if self._event is not None:
            self._listener.unsubscribe(self._event)
            self._event = None
        await self._deregister()

    async def __aenter__(self) -> Self:
        self._signal()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Between two queries of the owner.

    async def wait(self) -> bool:
        """The last query found nothing: return when the owner should query again.

        Returns at once after a new registration, because the last query ran without it, and soon
        at the next call, because of transactions that were about to commit. False if only the time
        to poll has come: neither a notification nor a chance that one was missed.
        """
        event = self._signal()
        self._idle_at = time.monotonic()
        if not self._listener.connected.is_set():
            return await self.pause()
        if self._registration_is_due():
            try:
                new = await self._register()
            except FlowFabricError as error:
                log.warning("cannot register for notifications, polling instead: %s", error)
                return await self.pause()
            if new:
                event.clear()
                self._settled = False
                return True
        settling, self._settled = not self._settled, True
        longest = min(self._poll, _SETTLED_AFTER) if settling else self._poll
        notified = await signalled(event, longest * random.uniform(0.8, 1.2))
        if self._gather:
            await asyncio.sleep(self._gather)
            notified = notified or event.is_set()
            event.clear()
        return notified or settling

    async def pause(self) -> bool:
        """Return when signalled, or after a short pause; used while notifications may be missing.

        Each pause that ends without a signal doubles the next one, up to a second; False then.
        """
        if await signalled(self._signal(), self._pause * random.uniform(0.5, 1.0)):
            return True
        self._pause = min(self._pause * 2, _LAST_PAUSE)
        return False

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds, or when signalled; the owner queries then."""
        await signalled(self._signal(), seconds)

    def found(self) -> None:
        """The last query found something: pauses are short again."""
        self._pause = self._first_pause

    async def busy(self) -> None:
        """The last query found so much that the owner queries again without waiting.

        Deregisters, so that its topics are not notified needlessly; unless the owner waited a
        moment ago, because then it will probably wait again soon.
        """
        self.found()
        if self._registered_at is not None and time.monotonic() - self._idle_at > _BUSY_AFTER:
            await self._deregister()

    def looking(self) -> None:
        """A query begins, and covers every signal up to now.

        For an owner that queries without having waited; `wait` and `pause` clear signals too.
        """
        if self._event is not None:
            self._event.clear()

    def wake(self) -> None:
        """Make the running `wait`, or the next one, return at once."""
        self._signal().set()

    def _signal(self) -> asyncio.Event:
        """The event of this waiter, set by a notification, a reconnect and `wake`."""
        if self._event is None:
            self._listener.start()
            self._event = self._listener.subscribe(*self._topics)
        return self._event

    # The registration.

    def _registration_is_due(self) -> bool:
        """True without a registration, after half of its time, or if a crash may have lost it."""
        return (
            self._registered_at is None
            or time.monotonic() - self._registered_at > WAITING_FOR / 2
            or self._connection != self._listener.connections
        )

    async def _register(self) -> bool:
        """Register; True if the waiter may have been unregistered since the last registration."""
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
        with contextlib.suppress(FlowFabricError, TimeoutError):  # the registration expires
            async with asyncio.timeout(_CLOSE_WITHIN):
                await run(self._pool, "deregister", lambda conn: deregister(conn, self._waiter_id))
            self._listed = False
