"""Subscriptions: everything that happens, in order, to whoever iterates."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, NoReturn

from flowfabric.db.listen import Listener
from flowfabric.db.pool import Pool
from flowfabric.engine.events.completion_events import COMPLETIONS
from flowfabric.engine.events.cursor import decode_cursor, encode_cursor
from flowfabric.engine.events.feed import MEMORY, Feed
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LEASES
from flowfabric.engine.events.operator_events import OPERATORS
from flowfabric.engine.events.outbox import E, Entry
from flowfabric.engine.events.reader import BACK_OFF, LOST, Seat
from flowfabric.errors import StreamDisconnected, Unavailable

EVERYTHING: Final = EventFilter()


class Subscription(Generic[E]):
    """An async iterator over events, ascending by id, none missing; for one task at a time.

    Leave it with `async with`, or call `aclose()`. Subscriptions to leases and operators end with
    `StreamDisconnected` when the connection is lost; subscribe again with its cursor. Those to
    completions go on by themselves.
    """

    def __init__(self, feed: Feed[E], seat: Seat[E], wanted: EventFilter) -> None:
        self._feed, self._seat, self._wanted = feed, seat, wanted
        self._entries: deque[Entry[E]] = deque()
        self._end = seat.position
        self._ended = False

    @property
    def cursor(self) -> bytes:
        """Where to resume: behind the last event that was handed out or passed over."""
        return encode_cursor(self._seat.position)

    def __aiter__(self) -> Subscription[E]:
        return self

    async def __anext__(self) -> E:
        while not self._ended:
            while self._entries:
                entry = self._entries.popleft()
                self._seat.position = entry.event_id
                if entry.event is not None and self._wanted.accepts(entry):
                    return entry.event
            self._seat.position = max(self._seat.position, self._end)
            if self._seat.reader.over:
                self._finish()
            else:
                await self._turn_the_page()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """No more events; the last subscriber of a family ends its reader."""
        self._ended = True
        self._entries.clear()
        await self._feed.leave(self._seat)

    async def __aenter__(self) -> Subscription[E]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _turn_the_page(self) -> None:
        reader = self._seat.reader
        try:
            page = await reader.page(self._seat.position)
        except LOST as error:
            if not reader.over and not self._feed.family.hides_disconnects:
                self._cut(error)
            await asyncio.sleep(BACK_OFF)
        else:
            if not self._ended:
                self._entries.extend(page.entries)
                self._end = page.end

    def _finish(self) -> None:
        """The reader is over: it was closed, or stopped by an error."""
        failure = self._seat.reader.failure
        if isinstance(failure, LOST):
            self._cut(failure)
        self._ended = True
        if failure is not None:
            raise failure

    def _cut(self, error: Exception) -> NoReturn:
        self._ended = True
        self._seat.reader.give_up(self._seat)
        raise StreamDisconnected(self.cursor) from error


class Hub:
    """The outboxes of one process. Any number may subscribe; each family has one reader at most.

    Whoever makes the hub closes it before the listener and the pool that it was given.
    """

    def __init__(self, pool: Pool, listener: Listener, *, memory: int = MEMORY) -> None:
        self._partitions = pool.config.partitions.num_flow_partitions
        self.completions: Final = Feed(pool, listener, COMPLETIONS, memory=memory)
        self.leases: Final = Feed(pool, listener, LEASES, memory=memory)
        self.operators: Final = Feed(pool, listener, OPERATORS, memory=memory)

    async def subscribe_instance_tags(self) -> NoReturn:
        """Not served: tags are copied into every event."""
        raise Unavailable("subscribe_instance_tags", "filter another family by tag instead")

    def gap_ages(self) -> dict[str, float]:
        """For each family, for how many seconds an open writer has held its events up."""
        feeds = (self.completions, self.leases, self.operators)
        return {feed.family.name: feed.gap_age for feed in feeds}

    async def close(self) -> None:
        """Every subscription ends; nobody can subscribe any more."""
        await asyncio.gather(self.completions.close(), self.leases.close(), self.operators.close())

    async def subscribe(
        self, feed: Feed[E], cursor: bytes, wanted: EventFilter | None
    ) -> Subscription[E]:
        position = decode_cursor(cursor)
        wanted = (wanted or EVERYTHING).check(partitions=self._partitions)
        return Subscription(feed, await feed.join(position), wanted)
