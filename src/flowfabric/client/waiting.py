"""Waiting for outcomes: everything that one client waits for is one waiter and one statement."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import Final

from flowfabric.db.listen import Listener
from flowfabric.db.waiter import Waiter
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.errors import FlowFabricError
from flowfabric.ids import ExecutionId

log: Final = logging.getLogger("flowfabric.client")
TOPIC: Final = "completion"
_POLL_LISTENING: Final = 2.0
_GATHER: Final = 0.002


class Waits:
    """Resolves a future for every execution somebody waits for, when it has ended."""

    def __init__(self, engine: Engine, listener: Listener) -> None:
        self._engine = engine
        self._waiter = Waiter(
            engine.pool, listener, [TOPIC], name="client", poll=_POLL_LISTENING, gather=_GATHER
        )
        self._waiting: defaultdict[ExecutionId, set[asyncio.Future[ExecutionOutcome]]] = (
            defaultdict(set)
        )
        self._task: asyncio.Task[None] | None = None

    async def outcome(self, execution_id: ExecutionId) -> ExecutionOutcome:
        """How the execution ended, as soon as it has."""
        future: asyncio.Future[ExecutionOutcome] = asyncio.get_running_loop().create_future()
        self._waiting[execution_id].add(future)
        self._waiter.wake()
        if self._task is None or self._task.done():
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
        """Stop looking, and be no longer registered as waiting."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=2.0)
        await self._waiter.close()

    async def _watch(self) -> None:
        while self._waiting:
            self._waiter.looking()
            try:
                found = await self._look()
            except FlowFabricError as error:
                log.warning("cannot look for outcomes: %s", error)
                await self._waiter.pause()
                continue
            if found:
                self._waiter.found()
            else:
                await self._waiter.wait()

    async def _look(self) -> bool:
        outcomes = await self._engine.read_outcomes(list(self._waiting))
        for execution_id, outcome in outcomes.items():
            for future in tuple(self._waiting.get(execution_id, ())):
                if not future.done():
                    future.set_result(outcome)
            self._waiting.pop(execution_id, None)
        return bool(outcomes)
