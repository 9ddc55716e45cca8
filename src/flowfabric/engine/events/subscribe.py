"""Subscriptions: async iterators over the events of an outbox, in order and without gaps."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, Generic, NoReturn

from flowfabric.db.listen import Listener
from flowfabric.db.pool import Pool
from flowfabric.engine.events.broadcast import MEMORY, Broadcast
from flowfabric.engine.events.completion_events import COMPLETIONS
from flowfabric.engine.events.cursor import decode_cursor, encode_cursor
from flowfabric.engine.events.filters import EventFilter
from flowfabric.engine.events.lease_events import LEASES
from flowfabric.engine.events.operator_events import OPERATORS
from flowfabric.engine.events.outbox import E, Entry
from flowfabric.engine.events.reader import BACK_OFF, LOST, Subscriber
from flowfabric.engine.events.signal_events import SIGNALS
from flowfabric.errors import StreamDisconnected, Unavailable

EVERYTHING: Final = EventFilter()


class Subscription(Generic[E]):
    """An async iterator over events, ascending by id, none missing; for one task at a time.

    Close it with `async with` or `aclose()`. Subscriptions to lease, operator and signal
    events end with `StreamDisconnected` if the connection is lost; subscribe again with its cursor.
    Subscriptions to completions go on by themselves.
    """

    def __init__(
        self, broadcast: Broadcast[E], subscriber: Subscriber[E], wanted: EventFilter
    ) -> None:
        self._broadcast, self._subscriber, self._wanted = broadcast, subscriber, wanted
        self._entries: deque[Entry[E]] = deque()
        self._end = subscriber.position
        self._ended = False

    @property
    def cursor(self) -> bytes:
        """The position to resume from: after the last event that was delivered or filtered out."""
        return encode_cursor(self._subscriber.position)

    def __aiter__(self) -> Subscription[E]:
        return self

    async def __anext__(self) -> E:
        while not self._ended:
            while self._entries:
                entry = self._entries.popleft()
                self._subscriber.position = entry.event_id
                if entry.event is not None and self._wanted.accepts(entry):
                    return entry.event
            self._subscriber.position = max(self._subscriber.position, self._end)
            if self._subscriber.reader.over:
                self._finish()
            else:
                await self._read_page()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """No more events; without subscribers the reader of the outbox stops."""
        self._ended = True
        self._entries.clear()
        await self._broadcast.unsubscribe(self._subscriber)

    async def __aenter__(self) -> Subscription[E]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _read_page(self) -> None:
        reader = self._subscriber.reader
        try:
            page = await reader.next_page(self._subscriber.position)
        except LOST as error:
            if not reader.over and not self._broadcast.outbox.hides_disconnects:
                self._disconnect(error)
            await asyncio.sleep(BACK_OFF)
        else:
            if not self._ended:
                self._entries.extend(page.entries)
                self._end = page.end

    def _finish(self) -> None:
        """The reader is over: it was closed, or an error stopped it."""
        failure = self._subscriber.reader.failure
        if isinstance(failure, LOST):
            self._disconnect(failure)
        self._ended = True
        if failure is not None:
            raise failure

    def _disconnect(self, error: Exception) -> NoReturn:
        self._ended = True
        self._subscriber.reader.remove(self._subscriber)
        raise StreamDisconnected(self.cursor) from error


class Hub:
    """The outboxes of one process, each with one reader at most for any number of subscribers.

    The hub must be closed before its listener and its pool.
    """

    def __init__(self, pool: Pool, listener: Listener, *, memory: int = MEMORY) -> None:
        self._partitions = pool.config.partitions.num_flow_partitions
        self.completions: Final = Broadcast(pool, listener, COMPLETIONS, memory=memory)
        self.leases: Final = Broadcast(pool, listener, LEASES, memory=memory)
        self.operators: Final = Broadcast(pool, listener, OPERATORS, memory=memory)
        self.signals: Final = Broadcast(pool, listener, SIGNALS, memory=memory)

    async def subscribe_instance_tags(self) -> NoReturn:
        """Raises `Unavailable`: tags are copied into every event instead."""
        raise Unavailable("subscribe_instance_tags", "filter another subscription by tag instead")

    def gap_ages(self) -> dict[str, float]:
        """For each outbox, how many seconds its events have waited for an unended writer."""
        return {each.outbox.name: each.gap_age for each in self._broadcasts()}

    async def close(self) -> None:
        """Every subscription ends, and `subscribe` raises `Unavailable`."""
        await asyncio.gather(*(each.close() for each in self._broadcasts()))

    async def subscribe(
        self, broadcast: Broadcast[E], cursor: bytes, wanted: EventFilter | None
    ) -> Subscription[E]:
        """The events after `cursor` that match; raises `ValidationError` for cursor or filter."""
        position = decode_cursor(cursor)
        wanted = (wanted or EVERYTHING).check(partitions=self._partitions)
        return Subscription(broadcast, await broadcast.subscribe(position), wanted)

    def _broadcasts(self) -> tuple[Broadcast[Any], ...]:
        return (self.completions, self.leases, self.operators, self.signals)
