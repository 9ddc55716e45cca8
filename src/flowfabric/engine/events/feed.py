"""The shared reading of one outbox: there is a reader exactly while somebody subscribes."""

from __future__ import annotations

import asyncio
from typing import Final, Generic

from flowfabric.db.listen import Listener
from flowfabric.db.pool import Pool
from flowfabric.engine.events.outbox import E, Outbox
from flowfabric.engine.events.reader import Reader, Seat
from flowfabric.engine.events.settle import settled_newest
from flowfabric.errors import Unavailable

MEMORY: Final = 4096
"""How many events a feed keeps at least for those who lag; at most twice as many."""


class Feed(Generic[E]):
    """One outbox of one process. Everybody who joins shares one reader."""

    def __init__(
        self, pool: Pool, listener: Listener, family: Outbox[E], *, memory: int = MEMORY
    ) -> None:
        self.family = family
        self._pool, self._listener, self._memory = pool, listener, memory
        self._reader: Reader[E] | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def gap_age(self) -> float:
        """For how many seconds a writer that has not ended holds delivery up; 0.0 if none does."""
        return 0.0 if self._reader is None else self._reader.gap_age

    @property
    def is_reading(self) -> bool:
        """Is there a reader?"""
        return self._reader is not None and not self._reader.over

    async def join(self, position: int | None) -> Seat[E]:
        """A seat behind `position`, or behind whatever has happened by now.

        In either case, whatever is committed after this returns is still to come.
        """
        self._listener.start()
        now: int | None = None
        if position is None:
            position = now = await settled_newest(self._pool, self.family)
        async with self._starting:
            if self._reader is None or self._reader.over:
                # A cursor may name an id that is not final, or lies ahead: no horizon for others.
                if now is None:
                    now = await settled_newest(self._pool, self.family)
                self._reader = self._started(now)
            return self._reader.seat(position)

    async def leave(self, seat: Seat[E]) -> None:
        """The seat is given up; the last one to leave ends the reader."""
        if seat.reader.give_up(seat):
            if self._reader is seat.reader:
                self._reader = None
            await seat.reader.stop()

    async def close(self) -> None:
        """Every subscription ends, and nobody can join any more."""
        self._closed = True
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.stop()

    def _started(self, horizon: int) -> Reader[E]:
        if self._closed:
            raise Unavailable("subscribe", "the engine is closed")
        return Reader(self._pool, self._listener, self.family, horizon=horizon, memory=self._memory)
