"""What the requests of one process share."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Final, TypeVar

from flowfabric.client.outcome_waiter import OutcomeWaiter
from flowfabric.db.batcher import Batcher
from flowfabric.db.waiter import Waiter
from flowfabric.engine.engine import Engine
from flowfabric.engine.executions.read_outcomes import ExecutionOutcome
from flowfabric.engine.lifecycle.create_execution import Created, Duplicate, NewExecution
from flowfabric.ids import ExecutionId
from flowfabric.server.access.authenticate import Authenticator
from flowfabric.server.limits import Meter, configured_limits
from flowfabric.server.settings import Settings

T = TypeVar("T")
_PER_STATEMENT: Final = 500
_POLL: Final = 2.0


class Services:
    """The engine, and what waits and gathers on its behalf."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine, self.settings = engine, settings
        self.meter = Meter(configured_limits())
        self.authenticator = Authenticator(engine, settings)
        self.draining = asyncio.Event()
        """Set when the server stops: streams end, and waits answer at once."""
        self.not_ready: list[str] = []
        self._submits: Batcher[NewExecution, Created | Duplicate] = Batcher(
            engine.create_execution,
            first_send=partial(engine.create_execution, fresh=True),
            max_weight=_PER_STATEMENT,
        )
        self._outcomes: OutcomeWaiter[ExecutionId, ExecutionOutcome] | None = None

    async def close(self) -> None:
        """Nothing waits any more; the engine stays open."""
        self.draining.set()
        if self._outcomes is not None:
            await self._outcomes.close()

    async def submit(self, new: NewExecution) -> Created | Duplicate:
        """Create one execution, in one statement with those that are submitted meanwhile."""
        return await self._submits.request(new)

    async def first_outcomes(
        self, executions: Sequence[ExecutionId], seconds: float
    ) -> list[ExecutionOutcome]:
        """The outcomes of those that have ended: as soon as there is one, or after `seconds`."""
        found = await self.engine.read_outcomes(executions)
        if found or seconds <= 0 or self.draining.is_set() or not executions:
            return list(found.values())
        if self._outcomes is None:
            self._outcomes = OutcomeWaiter(self.engine, self.engine.read_outcomes)
        waits = [asyncio.create_task(self._outcomes.wait(each)) for each in executions]
        draining = asyncio.create_task(self.draining.wait())
        try:
            await asyncio.wait(
                (*waits, draining), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            return [each.result() for each in waits if each.done() and not each.exception()]
        finally:
            for task in (*waits, draining):
                task.cancel()
            await asyncio.gather(*waits, draining, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def waiter(self, topics: Sequence[str]) -> AsyncGenerator[Waiter]:
        """Tells when one of the topics may have changed."""
        engine = self.engine
        async with Waiter(engine.pool, engine.listener, topics, name="server", poll=_POLL) as found:
            yield found

    async def pause(self, waiter: Waiter, seconds: float) -> None:
        """Return when the waiter says so, after `seconds`, or when the server stops."""
        waiting = asyncio.create_task(waiter.wait())
        draining = asyncio.create_task(self.draining.wait())
        try:
            await asyncio.wait(
                (waiting, draining), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in (waiting, draining):
                task.cancel()
            await asyncio.gather(waiting, draining, return_exceptions=True)
