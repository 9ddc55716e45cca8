"""A claimed execution in the caller's hands: the low-level way to run work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, Self

from flowfabric.engine.facade import Engine
from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.claim import Claimed
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.delay import Delayed, Rest
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed
from flowfabric.errors import LeaseLost, TaskConsumed
from flowfabric.ids import ExecutionId
from flowfabric.states import FailureClass
from flowfabric.worker.held import Held
from flowfabric.worker.outbox import Outbox, Outcome

log: Final = logging.getLogger("flowfabric.worker")


class ClaimedTask:
    """Held until one ending call; its lease is renewed in the background meanwhile."""

    def __init__(
        self, held: Held, engine: Engine, outbox: Outbox, *, on_end: Callable[[], None]
    ) -> None:
        self._held, self._engine, self._outbox, self._on_end = held, engine, outbox, on_end

    @property
    def claimed(self) -> Claimed:
        return self._held.claimed

    @property
    def execution_id(self) -> ExecutionId:
        return self._held.claimed.lease.execution_id

    @property
    def input_payload(self) -> bytes:
        return self._held.claimed.input_payload

    @property
    def healthy(self) -> bool:
        """Is the lease held, with fewer than three failed renewals in a row?"""
        return not self._held.lost and self._held.failures < 3

    async def complete(self, result: bytes | None = None) -> Completed:
        """End it with success."""
        return await self._end(Completion(self._lease(), result))

    async def fail(
        self, reason: str, category: str = FailureClass.TRANSIENT.value
    ) -> RetryScheduled | TerminalFailed:
        """Fail the attempt; the policy decides what follows."""
        failure = Failure(lease=self._lease(), reason=str(reason), category=str(category))
        return await self._end(failure)

    async def cancel(self, reason: str) -> None:
        """End it without a result."""
        await self._end(Cancellation(self._lease(), str(reason)))

    async def delay(
        self, *, until: datetime | None = None, for_: float | timedelta | None = None
    ) -> Delayed:
        """Park it; the same attempt goes on then."""
        return await self._end(Rest(lease=self._lease(), delay_until=until, delay=for_))

    async def release(self) -> None:
        """Hand it back; anybody may claim it at once."""
        await self._end(self._lease())

    async def progress(self, percent: int | None = None, message: str | None = None) -> None:
        """Store how far it has come."""
        refusal = await self._engine.progress(self._lease(), percent=percent, message=message)
        if refusal is not None:
            raise LeaseLost(str(refusal)) from refusal

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._held.lost and not self._held.finished:
            self._outbox.forget(self._held)
            self._on_end()
        elif not self._held.finished:
            log.warning("task %s was left without an end and is handed back", self.execution_id)
            await self.release()

    def _lease(self) -> Any:
        if self._held.finished:
            raise TaskConsumed(f"task {self.execution_id} was already ended")
        return self._held.claimed.lease

    async def _end(self, outcome: Outcome) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._outbox.put(self._held, outcome, answer)
        try:
            recorded = await answer
        finally:
            self._on_end()
        if recorded is None:
            raise LeaseLost(f"the lease of {self.execution_id} is gone")
        if isinstance(recorded, Exception):
            raise recorded
        return recorded
