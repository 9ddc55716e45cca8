"""A claimed execution that the caller runs: the low-level way to do work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.complete import Completed, Completion
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.engine.streams.append_frame import Append, Appended
from flowfabric.engine.streams.frame import DEFAULT_TTL, NewFrame
from flowfabric.errors import EngineError, LeaseLost, TaskConsumed
from flowfabric.ids import ExecutionId
from flowfabric.states import FailureClass, FrameMode
from flowfabric.worker.outcome_recorder import Outcome, OutcomeRecorder
from flowfabric.worker.repeat_while_leased import repeat_while_leased
from flowfabric.worker.running_attempt import RunningAttempt

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike

log: Final = logging.getLogger("flowfabric.worker")


class ClaimedTask:
    """One claimed execution; its lease is renewed until a call ends the attempt."""

    def __init__(
        self,
        attempt: RunningAttempt,
        engine: EngineLike,
        recorder: OutcomeRecorder,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self._attempt, self._engine = attempt, engine
        self._recorder, self._on_end = recorder, on_end

    @property
    def claimed(self) -> Claimed:
        return self._attempt.claimed

    @property
    def execution_id(self) -> ExecutionId:
        return self._attempt.execution_id

    @property
    def input_payload(self) -> bytes:
        return self._attempt.claimed.input_payload

    @property
    def healthy(self) -> bool:
        """Is the lease held, with fewer than three failed renewals in a row?"""
        return self._attempt.healthy

    async def complete(
        self, result: bytes | None = None, *, encoding: str | None = None
    ) -> Completed:
        """End the execution with success.

        `encoding` says how the result is encoded (`json`, `msgpack`, `bytes` or the name of a
        codec); without it the result is read as the payload is.
        """
        return await self._end(Completion(self._lease(), result, encoding))

    async def fail(
        self, reason: str, category: str = FailureClass.TRANSIENT.value
    ) -> RetryScheduled | TerminalFailed:
        """Fail the attempt; the policy decides between retry and end."""
        failure = Failure(lease=self._lease(), reason=str(reason), category=str(category))
        return await self._end(failure)

    async def cancel(self, reason: str) -> None:
        """End the execution as cancelled, without a result."""
        await self._end(Cancellation(self._lease(), str(reason)))

    async def delay(
        self, *, until: datetime | None = None, for_: float | timedelta | None = None
    ) -> Delayed:
        """Suspend the attempt until then; the same attempt continues afterwards."""
        return await self._end(DelayRequest(lease=self._lease(), delay_until=until, delay=for_))

    async def release(self) -> None:
        """Release the execution: any worker may claim it at once."""
        await self._end(self._lease())

    async def progress(self, percent: int | None = None, message: str | None = None) -> None:
        """Store how far the attempt has come; raises `LeaseLost` when the lease is not held."""
        lease = self._lease()
        refusal = await repeat_while_leased(
            self._attempt,
            lambda: self._engine.progress(lease, percent=percent, message=message),
        )
        if refusal is not None:
            raise LeaseLost(str(refusal)) from refusal

    async def append_frame(
        self,
        frame_type: str,
        payload: bytes = b"",
        *,
        mode: FrameMode = FrameMode.DURABLE,
        ttl: float | timedelta = DEFAULT_TTL,
        correlation_id: str | None = None,
    ) -> Appended:
        """Append a frame to the stream of the attempt; it is committed when the call returns.

        Raises `LeaseLost` when the lease is not held, and `ValidationError` as `NewFrame`.
        """
        frame = NewFrame(
            frame_type=frame_type,
            payload=payload,
            mode=mode,
            ttl=ttl,
            correlation_id=correlation_id,
        )
        append = Append(lease=self._lease(), frames=[frame])
        [answer] = await repeat_while_leased(
            self._attempt, lambda: self._engine.append_frames([append])
        )
        if isinstance(answer, EngineError):
            raise LeaseLost(str(answer)) from answer
        return answer[0]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._attempt.lost and not self._attempt.finished:
            self._recorder.discard(self._attempt)
            self._on_end()
        elif not self._attempt.finished:
            log.warning("%s was left without an outcome and is released", self._attempt)
            await self.release()

    def _lease(self) -> Lease:
        if self._attempt.finished:
            raise TaskConsumed(f"task {self.execution_id} was already ended")
        return self._attempt.lease

    async def _end(self, outcome: Outcome) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._recorder.put(self._attempt, outcome, answer)
        try:
            recorded = await answer
        finally:
            self._on_end()
        if recorded is None:
            raise LeaseLost(f"the lease of {self.execution_id} is lost")
        if isinstance(recorded, Exception):
            raise recorded
        return recorded
