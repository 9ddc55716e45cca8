"""Waits for outcomes: one query serves all executions that a client waits for."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import Final

from flowfabric.db.listen import Listener
from flowfabric.db.waiter import Waiter
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.errors import FlowFabricError, Unavailable
from flowfabric.ids import ExecutionId

log: Final = logging.getLogger("flowfabric.client")
TOPIC: Final = "completion"
_POLL_LISTENING: Final = 2.0
_GATHER: Final = 0.002


class OutcomeWaiter:
    """Resolves a future for each execution that is waited for, when the execution has ended."""

    def __init__(self, engine: Engine, listener: Listener) -> None:
        self._engine = engine
        self._waiter = Waiter(
            engine.pool, listener, [TOPIC], name="client", poll=_POLL_LISTENING, gather=_GATHER
        )
        self._futures: defaultdict[ExecutionId, set[asyncio.Future[ExecutionOutcome]]] = (
            defaultdict(set)
        )
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, execution_id: ExecutionId) -> ExecutionOutcome:
        """The outcome of the execution, once it has ended; raises `Unavailable` when closed."""
        if self._closed:
            raise _closed()
        future: asyncio.Future[ExecutionOutcome] = asyncio.get_running_loop().create_future()
        self._futures[execution_id].add(future)
        self._waiter.wake()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="flowfabric outcomes")
        try:
            return await future
        finally:
            futures = self._futures.get(execution_id)
            if futures is not None:
                futures.discard(future)
                if not futures:
                    del self._futures[execution_id]

    async def close(self) -> None:
        """Stop querying, and remove the registration as a waiter; calls that wait get an error."""
        self._closed = True
        for future in [each for waiting in self._futures.values() for each in waiting]:
            if not future.done():
                future.set_exception(_closed())
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=2.0)
        await self._waiter.close()

    async def _watch(self) -> None:
        while self._futures:
            self._waiter.looking()
            try:
                found = await self._read_outcomes()
            except FlowFabricError as error:
                log.warning("cannot read outcomes of %s executions: %s", len(self._futures), error)
                await self._waiter.pause()
                continue
            if found:
                self._waiter.found()
            else:
                await self._waiter.wait()

    async def _read_outcomes(self) -> bool:
        """Resolve the futures of executions that have ended; False if there were none."""
        outcomes = await self._engine.read_outcomes(list(self._futures))
        for execution_id, outcome in outcomes.items():
            for future in tuple(self._futures.get(execution_id, ())):
                if not future.done():
                    future.set_result(outcome)
            self._futures.pop(execution_id, None)
        return bool(outcomes)


def _closed() -> Unavailable:
    return Unavailable("result", "the client is closed; connect another one and wait again")
