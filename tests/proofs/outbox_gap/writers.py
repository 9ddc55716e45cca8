"""Writers of events: transactions that commit late, out of order, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.claim import Claimant, claim
from flowfabric.engine.lifecycle.complete import Completion, complete
from flowfabric.engine.lifecycle.create_execution import create_execution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import release
from tests import given

T = TypeVar("T")

ROLLED_BACK: Final = 0.05
COMPLETED: Final = 0.2
LEASES: Final = 120.0


class Lateness(msgspec.Struct, frozen=True):
    """How many seconds a transaction stays open after it has written."""

    usual: float
    """At most, of nearly all."""
    greatest: float
    """At most, of the few that stay open for long, and half as much at least."""
    few: float
    """Their share."""

    def drawn(self, chance: random.Random) -> float:
        if chance.random() < self.few:
            return chance.uniform(self.greatest / 2, self.greatest)
        return chance.uniform(0, self.usual)


class Writer:
    """Claims executions, completes some, hands back the others, and creates new ones instead.

    All writers share one lane: an execution that one of them handed back is claimed by another,
    whose transaction may have begun before.
    """

    def __init__(
        self, number: int, conn: Connection, chance: random.Random, *, batch: int, late: Lateness
    ) -> None:
        self._conn, self._chance, self._batch, self._late = conn, chance, batch, late
        self._claimant = Claimant(
            worker_id="w", worker_instance_id=f"w-{number}", lanes=("default",)
        )
        self.events = 0
        """Lease events that this writer has committed."""

    async def create(self, number: int) -> None:
        """So many executions that wait."""
        await create_execution(self._conn, [given.new() for _ in range(number)])

    async def write(self, enough: Callable[[], bool]) -> None:
        """Write events until there are enough."""
        while not enough():
            leases = await self._committed(self._claim)
            await self._committed(partial(self._give_up, leases))
            self.events += 2 * len(leases)

    @contextlib.asynccontextmanager
    async def unended(self) -> AsyncGenerator[int]:
        """Within the block a transaction is open whose events have ids up to the one it yields."""
        async with self._conn.transaction():
            leases = await self._claim()
            yield await self._conn.fetchval("SELECT max(event_id) FROM ff.lease_event")
        await self._committed(partial(self._give_up, leases))
        self.events += 2 * len(leases)

    async def _claim(self) -> list[Lease]:
        tasks = await claim(self._conn, self._claimant, ttl=LEASES, limit=self._batch)
        return [task.lease for task in tasks]

    async def _give_up(self, leases: list[Lease]) -> None:
        ends = [self._chance.random() < COMPLETED for _ in leases]
        ended = [lease for lease, end in zip(leases, ends, strict=True) if end]
        kept = [lease for lease, end in zip(leases, ends, strict=True) if not end]
        await self.create(len(ended))
        await release(self._conn, kept)
        await complete(self._conn, [Completion(lease) for lease in ended])

    async def _committed(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Make the change, commit it late, and make it again if the dice say that it is undone."""
        while True:
            transaction = self._conn.transaction()
            await transaction.start()
            answer = await change()
            await asyncio.sleep(self._late.drawn(self._chance))
            if self._chance.random() >= ROLLED_BACK:
                await transaction.commit()
                return answer
            await transaction.rollback()
