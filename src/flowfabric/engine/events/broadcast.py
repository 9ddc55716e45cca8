"""One outbox for all subscribers of a process, which share one reader while there are any."""

from __future__ import annotations

import asyncio
from typing import Final, Generic

from flowfabric.db.listen import Listener
from flowfabric.db.pool import Pool
from flowfabric.engine.events.outbox import E, Outbox
from flowfabric.engine.events.reader import Reader, Subscriber
from flowfabric.engine.events.wait_for_writers import newest_final_id
from flowfabric.errors import Unavailable

MEMORY: Final = 4096
"""How many events are kept at least for subscribers that lag; at most twice as many."""


class Broadcast(Generic[E]):
    """One outbox of one process. All its subscribers share one reader."""

    def __init__(
        self, pool: Pool, listener: Listener, outbox: Outbox[E], *, memory: int = MEMORY
    ) -> None:
        self.outbox = outbox
        self._pool, self._listener, self._memory = pool, listener, memory
        self._reader: Reader[E] | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def gap_age(self) -> float:
        """How many seconds delivery has waited for a writer that has not ended; 0.0 if for none."""
        return 0.0 if self._reader is None else self._reader.gap_age

    @property
    def is_reading(self) -> bool:
        """Is there a reader?"""
        return self._reader is not None and not self._reader.over

    async def subscribe(self, position: int | None) -> Subscriber[E]:
        """A subscriber that has read everything up to `position` (None: up to now).

        In either case it gets every event that is committed after this returns.
        """
        self._listener.start()
        now: int | None = None
        if position is None:
            position = now = await newest_final_id(self._pool, self.outbox)
        async with self._starting:
            if self._reader is None or self._reader.over:
                # Not the position: a cursor may name an id that is not final, or not given yet.
                if now is None:
                    now = await newest_final_id(self._pool, self.outbox)
                self._reader = self._new_reader(now)
            return self._reader.add(position)

    async def unsubscribe(self, subscriber: Subscriber[E]) -> None:
        """The subscriber gets no more events; without subscribers the reader stops."""
        reader = subscriber.reader
        if reader.remove(subscriber):
            if self._reader is reader:
                self._reader = None
            await reader.stop()

    async def close(self) -> None:
        """Every subscription ends, and `subscribe` raises `Unavailable`."""
        self._closed = True
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop()

    def _new_reader(self, horizon: int) -> Reader[E]:
        if self._closed:
            raise Unavailable("subscribe", "the engine is closed")
        return Reader(self._pool, self._listener, self.outbox, horizon=horizon, memory=self._memory)
