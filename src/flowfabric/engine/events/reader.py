"""One reader of an outbox for everybody who subscribes to it.

It moves a horizon: every id up to it is final, because its row was seen or can never appear. What
it reads it keeps for a while. A subscriber who stands where memory begins, or later, reads memory;
one who stands further back reads the table for itself, up to the horizon, and so comes closer. So
nobody waits for anybody, nothing is dropped, and what is kept is bounded.
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
from flowfabric.engine.events.settle import settle
from flowfabric.errors import OperationTimeout, ResourceExhausted, RetryExhausted, TransportError

log: Final = logging.getLogger("flowfabric.events")

LOST: Final = (TransportError, OperationTimeout, ResourceExhausted, RetryExhausted)
"""The database could not be asked; nothing is wrong with the question."""

BATCH: Final = 256
BACK_OFF: Final = 0.2
_OPEN_END: Final = 2**63 - 1
_POLL_LISTENING: Final = 5.0
_GATHER: Final = 0.005
_STOP_WITHIN: Final = 4.0


class Page(msgspec.Struct, Generic[E], frozen=True):
    """Some events in order, and where their reader stands after them."""

    entries: Sequence[Entry[E]]
    end: int


class Seat(Generic[E]):
    """The place of one subscriber at a reader: it has seen everything up to `position`."""

    def __init__(self, reader: Reader[E], position: int) -> None:
        self.reader, self.position = reader, position


class Reader(Generic[E]):
    """Reads while anybody has a seat; then, or when it cannot go on, it is `over` for good."""

    def __init__(
        self, pool: Pool, listener: Listener, family: Outbox[E], *, horizon: int, memory: int
    ) -> None:
        self.family, self.horizon, self.over = family, horizon, False
        self.failure: Exception | None = None
        self._pool, self._memory, self._kept = pool, memory, list[Entry[E]]()
        self._floor = horizon  # memory holds whatever lies between here and the horizon
        self._seats: weakref.WeakSet[Seat[E]] = weakref.WeakSet()
        self._moved = asyncio.Event()
        self._gap_since: float | None = None
        self._waiter = Waiter(
            pool,
            listener,
            family.topics,
            name=f"{family.name}-reader",
            poll=_POLL_LISTENING,
            gather=_GATHER,
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def gap_age(self) -> float:
        """Seconds since which an id is missing below one that was seen; 0.0 when none is."""
        return 0.0 if self._gap_since is None else time.monotonic() - self._gap_since

    def seat(self, position: int) -> Seat[E]:
        """A place for one who has seen everything up to `position`; the reader runs from now on."""
        seat = Seat(self, position)
        self._seats.add(seat)
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"flowfabric {self.family.name}s")
        return seat

    def give_up(self, seat: Seat[E]) -> bool:
        """The seat is free; was it the last?"""
        self._seats.discard(seat)
        self.stir()
        return not self._seats

    async def stop(self) -> None:
        """Read no more; whoever still has a seat is told."""
        if self._task is None:
            return
        if not self.over:
            self._task.cancel()
        await asyncio.wait((self._task,), timeout=_STOP_WITHIN)
        self.over = True  # also if it had not begun
        self.stir()

    def stir(self) -> None:
        """Whoever waits for a page looks again."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def page(self, position: int) -> Page[E]:
        """What follows `position`; waits for news if there is nothing, and may come back empty."""
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
            await self._follow()
        except Exception as error:
            if not isinstance(error, LOST):
                log.exception("reading %s events failed", self.family.name)
            self.failure = error
        finally:
            self.over, self._gap_since = True, None
            self.stir()
            await self._waiter.close()

    async def _follow(self) -> None:
        while self._seats:
            try:
                found = await self._advance()
            except LOST as error:
                if not self.family.hides_disconnects:
                    raise
                log.warning("cannot read %s events, trying again: %s", self.family.name, error)
                await asyncio.sleep(BACK_OFF)
                continue
            if found:
                self._waiter.found()
            if found < BATCH:
                await self._waiter.wait()

    async def _advance(self) -> int:
        """One look: what follows the horizon without a gap, then what a gap hid; how many rows."""
        found = await self._read(self.horizon, _OPEN_END)
        whole = 0
        while whole < len(found) and found[whole].event_id == self.horizon + whole + 1:
            whole += 1
        if whole:
            self._tell(found[:whole], found[whole - 1].event_id)
        if whole < len(found):
            await self._close_gap(found[-1].event_id)
        else:
            self._gap_since = None
        return len(found)

    async def _close_gap(self, highest: int) -> None:
        """Wait until the ids below `highest` are there or never will be; then tell them."""
        if self._gap_since is None:
            self._gap_since = time.monotonic()
        await settle(self._pool)
        while self.horizon < highest:
            page = _page(await self._read(self.horizon, highest), highest)
            self._tell(page.entries, page.end)
        self._gap_since = None

    async def _read(self, after: int, upto: int) -> list[Entry[E]]:
        return await run(
            self._pool,
            f"read {self.family.name} events",
            lambda conn: self.family.read(conn, after, upto, BATCH),
        )

    def _tell(self, entries: Sequence[Entry[E]], upto: int) -> None:
        self._kept.extend(entries)
        if len(self._kept) > 2 * self._memory:
            forgotten = len(self._kept) - self._memory
            self._floor = self._kept[forgotten - 1].event_id
            del self._kept[:forgotten]
        self.horizon = upto
        self.stir()


def _event_id(entry: Entry[E]) -> int:
    return entry.event_id


def _page(entries: Sequence[Entry[E]], upto: int) -> Page[E]:
    """A full page ends with its last event; one that is not full reaches to where it was cut."""
    return Page(entries, entries[-1].event_id if len(entries) == BATCH else upto)
