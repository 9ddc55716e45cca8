"""A claimed execution in the caller's hands: the low-level way to run work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, Self

from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.errors import LeaseLost, TaskConsumed
from flowfabric.ids import ExecutionId
from flowfabric.states import FailureClass
from flowfabric.worker.outcome_recorder import Outcome, OutcomeRecorder
from flowfabric.worker.running_attempt import RunningAttempt

log: Final = logging.getLogger("flowfabric.worker")


class ClaimedTask:
    """RunningAttempt until one ending call; its lease is renewed in the background meanwhile."""

    def __init__(
        self,
        running: RunningAttempt,
        engine: Engine,
        recorder: OutcomeRecorder,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self._running, self._engine, self._recorder, self._on_end = (
            running,
            engine,
            recorder,
            on_end,
        )

    @property
    def claimed(self) -> Claimed:
        return self._running.claimed

    @property
    def execution_id(self) -> ExecutionId:
        return self._running.claimed.lease.execution_id

    @property
    def input_payload(self) -> bytes:
        return self._running.claimed.input_payload

    @property
    def healthy(self) -> bool:
        """Is the lease running, with fewer than three failed renewals in a row?"""
        return not self._running.lost and self._running.failures < 3

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
        return await self._end(DelayRequest(lease=self._lease(), delay_until=until, delay=for_))

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
        if self._running.lost and not self._running.finished:
            self._recorder.forget(self._running)
            self._on_end()
        elif not self._running.finished:
            log.warning("task %s was left without an end and is handed back", self.execution_id)
            await self.release()

    def _lease(self) -> Any:
        if self._running.finished:
            raise TaskConsumed(f"task {self.execution_id} was already ended")
        return self._running.claimed.lease

    async def _end(self, outcome: Outcome) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._recorder.put(self._running, outcome, answer)
        try:
            recorded = await answer
        finally:
            self._on_end()
        if recorded is None:
            raise LeaseLost(f"the lease of {self.execution_id} is gone")
        if isinstance(recorded, Exception):
            raise recorded
        return recorded
