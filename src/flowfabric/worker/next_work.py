"""When a worker that found nothing to claim claims again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from flowfabric.db.waiter import Waiter
from flowfabric.engine.lifecycle.claim import Claimant
from flowfabric.worker.background import cancel
from flowfabric.worker.passed_over import PassedOver

if TYPE_CHECKING:
    from flowfabric.engine.engine import Engine


class NextWork:
    """Waits for a notification or the time to poll.

    After a notification, or after work was found, an empty claim may have passed over what is
    locked for a moment; then the worker claims again soon. A worker that only polls asks nothing.
    """

    def __init__(self, engine: Engine, waiter: Waiter, stopping: asyncio.Event) -> None:
        self._engine, self._waiter, self._stopping = engine, waiter, stopping
        self._passed_over = PassedOver()
        self._notified = True

    async def found(self) -> None:
        """The last claim found something."""
        self._notified = True
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
        if self._notified and await self._passed_over.look(self._engine, claimant):
            return True
        return await self._waiter.wait()
