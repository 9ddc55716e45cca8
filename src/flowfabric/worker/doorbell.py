"""How an idle worker learns of work: NOTIFY where it can, polling always."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import Final

from flowfabric.db.listen import WAITING_FOR, Listener, leave, rung, wait_for
from flowfabric.db.transaction import run
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError

POLL_LISTENING: Final = 3.0
_FIRST_PAUSE: Final = 0.05
_LAST_PAUSE: Final = 1.0
_BUSY_AFTER: Final = 0.25


class Doorbell:
    """Knows whether this worker is registered as waiting, and for how long to sleep."""

    def __init__(
        self, engine: Engine, listener: Listener, waiter_id: str, lanes: list[str]
    ) -> None:
        self._engine, self._listener = engine, listener
        self._waiter_id = waiter_id
        self._topics = [f"lane:{lane}" for lane in lanes]
        self._registered_at: float | None = None
        self._idle_at = time.monotonic()
        self._pause = _FIRST_PAUSE

    async def wait(self, bell: asyncio.Event) -> None:
        """Sleep until there may be work; the caller then looks."""
        self._idle_at = time.monotonic()
        if not self._listener.connected.is_set():
            await rung(bell, self._pause * random.uniform(0.5, 1.0))
            self._pause = min(self._pause * 2, _LAST_PAUSE)
            return
        registered = self._registered_at
        if registered is None or self._idle_at - registered > WAITING_FOR / 2:
            await run(
                self._engine.pool,
                "wait_for",
                lambda conn: wait_for(conn, self._waiter_id, self._topics),
            )
            self._registered_at = time.monotonic()
            if registered is None:
                return  # work may have come before anybody knew that we wait: look once more
        await rung(bell, POLL_LISTENING * random.uniform(0.8, 1.2))

    async def busy(self) -> None:
        """There is work; once that has lasted a while, nobody needs to ring."""
        self._pause = _FIRST_PAUSE
        now = time.monotonic()
        if self._registered_at is not None and now - self._idle_at > _BUSY_AFTER:
            self._registered_at = None
            with contextlib.suppress(FlowFabricError):  # it lapses by itself
                await self.leave()

    async def leave(self) -> None:
        await run(self._engine.pool, "leave", lambda conn: leave(conn, self._waiter_id))
