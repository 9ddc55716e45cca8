"""When a worker that found nothing to claim claims again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Final

from flowfabric.db.waiter import Waiter
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.worker.background import cancel
from flowfabric.worker.passed_over import PassedOver

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike
    from flowfabric.worker.claims import Claims
    from flowfabric.worker.running_attempt import RunningAttempt


_WAIT: Final = 20.0
"""Seconds that a server waits for something to claim."""
_SOON: Final = 0.5
"""A server that answers an empty claim sooner is stopping."""


class NextWork:
    """Waits for a notification or the time to poll.

    After a notification, or after work was found, an empty claim may have passed over what is
    locked for a moment; then the worker claims again soon. A worker that only polls asks nothing.
    """

    def __init__(self, engine: EngineLike, waiter: Waiter, stopping: asyncio.Event) -> None:
        self._engine, self._waiter, self._stopping = engine, waiter, stopping
        self._passed_over = PassedOver()
        self._notified = True

    async def claim(
        self, claims: Claims, engine: EngineLike, limit: int, *, wait: bool = True
    ) -> list[RunningAttempt]:
        """What is claimable now."""
        return await claims.claim(engine, limit)

    async def found(self) -> None:
        """The last claim found something."""
        self._notified = True
        self._passed_over.found()
        await self._waiter.busy()

    def wake(self) -> None:
        """Make the running `wait`, or the next one, return at once."""
        self._waiter.wake()

    async def wait(self, claimant: Claimant) -> None:
        """Return when there may be something to claim, or the worker is stopped."""
        waiting = asyncio.create_task(self._next(claimant))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not waiting.done():
                await cancel(waiting)
        self._notified = waiting.done() and not waiting.cancelled() and waiting.result()

    async def _next(self, claimant: Claimant) -> bool:
        """Return when the worker should claim; False if it is only time to poll."""
        if self._notified and await self._passed_over.look(
            self._engine, claimant, sleep=self._waiter.sleep
        ):
            return True
        return await self._waiter.wait()


class NextRemoteWork:
    """Claims at a server, which answers when there is something to claim."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping, self._woken = stopping, asyncio.Event()
        self._soon = False

    async def claim(
        self, claims: Claims, engine: EngineLike, limit: int, *, wait: bool = True
    ) -> list[RunningAttempt]:
        """What is claimable, within some seconds; nothing if the worker is woken or stopped."""
        self._woken.clear()
        began = time.monotonic()
        claiming = asyncio.create_task(claims.claim(engine, limit, wait=_WAIT if wait else 0.0))
        others = [asyncio.create_task(each.wait()) for each in (self._woken, self._stopping)]
        try:
            await asyncio.wait((claiming, *others), return_when=asyncio.FIRST_COMPLETED)
            if not claiming.done():
                return []
            found = claiming.result()
            self._soon = not found and time.monotonic() - began < _SOON
            return found
        finally:
            for task in others:
                task.cancel()
            if not claiming.done():
                await cancel(claiming)

    async def found(self) -> None:
        """The last claim found something."""

    def wake(self) -> None:
        """End the running claim: another one is wanted."""
        self._woken.set()

    async def wait(self, claimant: Claimant) -> None:
        """The next claim waits; only a server that does not, is given some time."""
        if self._soon or claimant.kinds == ():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(_SOON / 2, _SOON)):
                    await self._stopping.wait()
