"""One reader of an outbox for all its subscribers.

The reader moves a horizon. Every id up to the horizon is final: its row was read and a crash cannot
lose it, or its row can never appear. The reader keeps the newest entries in memory. A subscriber
whose position is in that range reads memory. A subscriber that lags behind it reads the table
itself, up to the horizon, until it has caught up. So a slow subscriber delays no other, no event is
dropped, and memory is bounded.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Generic

import msgspec

from flowfabric.db.listen import Listener
from flowfabric.db.pool import Pool
from flowfabric.db.transaction import run
from flowfabric.db.waiter import Waiter
from flowfabric.engine.events.outbox import E, Entry, Outbox
from flowfabric.engine.events.wait_for_flush import wait_for_flush
from flowfabric.engine.events.wait_for_writers import wait_for_writers
from flowfabric.errors import OperationTimeout, ResourceExhausted, RetryExhausted, TransportError

log: Final = logging.getLogger("flowfabric.events")

LOST: Final = (TransportError, OperationTimeout, ResourceExhausted, RetryExhausted)
"""The database could not be reached or was too busy; the same statement may succeed later."""

BATCH: Final = 256
BACK_OFF: Final = 0.2
_OPEN_END: Final = 2**63 - 1
_POLL_LISTENING: Final = 5.0
_GATHER: Final = 0.005
_STOP_WITHIN: Final = 4.0


class Page(msgspec.Struct, Generic[E], frozen=True):
    """Some entries in order, and the position after them."""

    entries: Sequence[Entry[E]]
    end: int


class Subscriber(Generic[E]):
    """One subscriber of a reader: it has read everything up to `position`."""

    def __init__(self, reader: Reader[E], position: int) -> None:
        self.reader, self.position = reader, position


class Reader(Generic[E]):
    """Reads while it has subscribers; without any, or after a failure, it is `over` for good."""

    def __init__(
        self, pool: Pool, listener: Listener, outbox: Outbox[E], *, horizon: int, memory: int
    ) -> None:
        self.outbox, self.horizon, self.over = outbox, horizon, False
        self.failure: Exception | None = None
        self._pool, self._memory, self._kept = pool, memory, list[Entry[E]]()
        self._floor = horizon  # memory holds every entry after this id, up to the horizon
        self._subscribers: weakref.WeakSet[Subscriber[E]] = weakref.WeakSet()
        self._moved = asyncio.Event()
        self._gap_since: float | None = None
        self._waiter = Waiter(
            pool,
            listener,
            outbox.topics,
            name=f"{outbox.name}-reader",
            poll=_POLL_LISTENING,
            gather=_GATHER,
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def gap_age(self) -> float:
        """For how many seconds an id has been missing below one that was read; 0.0 if none is."""
        return 0.0 if self._gap_since is None else time.monotonic() - self._gap_since

    def add(self, position: int) -> Subscriber[E]:
        """A subscriber that has read everything up to `position`; the reader runs from now on."""
        subscriber = Subscriber(self, position)
        self._subscribers.add(subscriber)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"flowfabric {self.outbox.name}s")
        return subscriber

    def remove(self, subscriber: Subscriber[E]) -> bool:
        """The subscriber is removed; was it the last?"""
        self._subscribers.discard(subscriber)
        self.wake_subscribers()
        return not self._subscribers

    async def stop(self) -> None:
        """Stop reading; the subscribers that are left see that the reader is `over`."""
        if self._task is None:
            return
        if not self.over:
            self._task.cancel()
        await asyncio.wait((self._task,), timeout=_STOP_WITHIN)
        self.over = True  # also if the task had not begun
        self.wake_subscribers()

    def wake_subscribers(self) -> None:
        """Every `next_page` that waits returns."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def next_page(self, position: int) -> Page[E]:
        """The entries after `position`; waits if there are none, and may then return none."""
        horizon, moved = self.horizon, self._moved
        if position < self._floor:
            return _page(await self._read(position, horizon), horizon)
        if position < horizon:
            first = bisect_right(self._kept, position, key=_event_id)
            return _page(self._kept[first : first + BATCH], horizon)
        if not self.over:
            await moved.wait()
        return Page((), position)

    async def _run(self) -> None:
        try:
            await self._read_while_subscribed()
        except Exception as error:
            if not isinstance(error, LOST):
                log.exception("reading %s events failed", self.outbox.name)
            self.failure = error
        finally:
            self.over, self._gap_since = True, None
            self.wake_subscribers()
            await self._waiter.close()

    async def _read_while_subscribed(self) -> None:
        while self._subscribers:
            try:
                found = await self._advance()
            except LOST as error:
                if not self.outbox.hides_disconnects:
                    raise
                log.warning("cannot read %s events, trying again: %s", self.outbox.name, error)
                await asyncio.sleep(BACK_OFF)
                continue
            if found:
                self._waiter.found()
            if found < BATCH:
                await self._waiter.wait()

    async def _advance(self) -> int:
        """Read on from the horizon: ids without a gap, then those behind a gap; how many rows."""
        found = await self._read_flushed(self.horizon, _OPEN_END)
        whole = 0
        while whole < len(found) and found[whole].event_id == self.horizon + whole + 1:
            whole += 1
        if whole:
            self._publish(found[:whole], found[whole - 1].event_id)
        if whole < len(found):
            await self._close_gap(found[-1].event_id)
        else:
            self._gap_since = None
        return len(found)

    async def _close_gap(self, highest: int) -> None:
        """Wait until the missing ids below `highest` are visible or never will be; publish all."""
        if self._gap_since is None:
            self._gap_since = time.monotonic()
        await wait_for_writers(self._pool)
        while self.horizon < highest:
            page = _page(await self._read_flushed(self.horizon, highest), highest)
            self._publish(page.entries, page.end)
        self._gap_since = None

    async def _read_flushed(self, after: int, upto: int) -> list[Entry[E]]:
        found = await self._read(after, upto)
        if found and self.outbox.is_flushed_later:
            await run(self._pool, "wait_for_flush", wait_for_flush)
        return found

    async def _read(self, after: int, upto: int) -> list[Entry[E]]:
        return await run(
            self._pool,
            f"read {self.outbox.name} events",
            lambda conn: self.outbox.read(conn, after, upto, BATCH),
        )

    def _publish(self, entries: Sequence[Entry[E]], upto: int) -> None:
        self._kept.extend(entries)
        if len(self._kept) > 2 * self._memory:
            dropped = len(self._kept) - self._memory
            self._floor = self._kept[dropped - 1].event_id
            del self._kept[:dropped]
        self.horizon = upto
        self.wake_subscribers()


def _event_id(entry: Entry[E]) -> int:
    return entry.event_id


def _page(entries: Sequence[Entry[E]], upto: int) -> Page[E]:
    """A full page ends at its last entry; a page that is not full ends at `upto`."""
    return Page(entries, entries[-1].event_id if len(entries) == BATCH else upto)
