"""Waiting for ends: everybody of one client who waits shares one listener and one statement."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections import defaultdict
from typing import Final

from flowfabric.db.listen import WAITING_FOR, Listener, leave, rung, wait_for
from flowfabric.db.transaction import run
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.errors import FlowFabricError
from flowfabric.ids import ExecutionId

log: Final = logging.getLogger("flowfabric.client")
TOPIC: Final = "completion"
_FIRST_PAUSE: Final = 0.02
_LAST_PAUSE: Final = 1.0
_POLL_LISTENING: Final = 2.0
_SETTLE: Final = 0.002


class Waits:
    """Resolves a future for every execution somebody waits for, when it has ended."""

    def __init__(self, engine: Engine, listener: Listener) -> None:
        self._engine, self._listener = engine, listener
        self._waiting: defaultdict[ExecutionId, set[asyncio.Future[ExecutionOutcome]]] = (
            defaultdict(set)
        )
        self._waiter_id = f"client-{secrets.token_hex(6)}"
        self._task: asyncio.Task[None] | None = None
        self._new = asyncio.Event()

    async def outcome(self, execution_id: ExecutionId) -> ExecutionOutcome:
        """How the execution ended, as soon as it has."""
        future: asyncio.Future[ExecutionOutcome] = asyncio.get_running_loop().create_future()
        self._waiting[execution_id].add(future)
        self._new.set()
        if self._task is None or self._task.done():
            self._listener.start()
            self._task = asyncio.create_task(self._watch(), name="flowfabric waits")
        try:
            return await future
        finally:
            futures = self._waiting.get(execution_id)
            if futures is not None:
                futures.discard(future)
                if not futures:
                    del self._waiting[execution_id]

    async def close(self) -> None:
        """Stop looking, and be no longer listed as waiting."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait((self._task,), timeout=2.0)
        with contextlib.suppress(FlowFabricError, TimeoutError):
            async with asyncio.timeout(2.0):
                await run(self._engine.pool, "leave", lambda conn: leave(conn, self._waiter_id))

    async def _watch(self) -> None:
        pause, registered_at = _FIRST_PAUSE, 0.0
        with self._listener.bell(TOPIC) as bell:
            while self._waiting:
                try:
                    listening = self._listener.connected.is_set()
                    if listening and time.monotonic() - registered_at > WAITING_FOR / 2:
                        await run(
                            self._engine.pool,
                            "wait_for",
                            lambda conn: wait_for(conn, self._waiter_id, [TOPIC]),
                        )
                        registered_at = time.monotonic()
                    self._new.clear()
                    found = await self._look()
                except FlowFabricError as error:
                    log.warning("cannot look for outcomes: %s", error)
                    found, listening = False, False
                if found:
                    pause = _FIRST_PAUSE
                    continue
                if listening:
                    await self._rest(bell, _POLL_LISTENING * random.uniform(0.8, 1.2))
                    await asyncio.sleep(_SETTLE)
                else:
                    await self._rest(bell, pause * random.uniform(0.5, 1.0))
                    pause = min(pause * 2, _LAST_PAUSE)

    async def _look(self) -> bool:
        outcomes = await self._engine.read_outcomes(list(self._waiting))
        for execution_id, outcome in outcomes.items():
            for future in tuple(self._waiting.get(execution_id, ())):
                if not future.done():
                    future.set_result(outcome)
            self._waiting.pop(execution_id, None)
        return bool(outcomes)

    async def _rest(self, bell: asyncio.Event, seconds: float) -> None:
        """Until the bell rings, somebody new waits, or the time is over."""
        ringing = asyncio.ensure_future(rung(bell, seconds))
        joining = asyncio.ensure_future(self._new.wait())
        try:
            await asyncio.wait((ringing, joining), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ringing.cancel()
            joining.cancel()
