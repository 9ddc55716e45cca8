"""Writes outcomes to the database in batches: one gathers while the previous is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import Released
from flowfabric.engine.lifecycle.release_after_trouble import Trouble
from flowfabric.errors import ExecutionNotActive, FlowFabricError, OperationTimeout
from flowfabric.worker.count_outcomes import count_outcome, count_outcomes
from flowfabric.worker.log_outcomes import log_not_recorded, log_outcome
from flowfabric.worker.maintenance import compensate
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike

log: Final = logging.getLogger("flowfabric.worker")
BATCH: Final = 500

Outcome: TypeAlias = Completion | Failure | Trouble | DelayRequest | Cancellation | Lease
"""How an attempt ends; a bare lease is released."""

_Operation: TypeAlias = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
_Entry: TypeAlias = tuple[RunningAttempt, Outcome, "asyncio.Future[Any] | None"]


class OutcomeRecorder:
    """Records outcomes soon after they are put; until then their leases are held and renewed."""

    def __init__(
        self,
        engine: EngineLike,
        held_leases: HeldLeases,
        on_recorded: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._engine, self._held_leases, self._on_recorded = engine, held_leases, on_recorded
        self._operations: dict[type, _Operation] = {
            Completion: engine.complete,
            Failure: engine.fail,
            Trouble: engine.release_after_trouble,
            DelayRequest: engine.delay,
            Cancellation: engine.cancel,
            Lease: engine.release,
        }
        self._queue: list[_Entry] = []
        self._queued = asyncio.Event()
        self._all_recorded = asyncio.Event()
        self._all_recorded.set()
        self._dispatch_due = asyncio.Event()
        self._all_dispatched = asyncio.Event()
        self._all_dispatched.set()
        self._compensates = False
        self._any_member = False
        self._freed_keys: set[int] = set()
        self._some_recorded = asyncio.Event()
        self._recorded = 0
        self._recorded_before = 0

    def put(
        self, attempt: RunningAttempt, outcome: Outcome, answer: asyncio.Future[Any] | None = None
    ) -> None:
        """Record `outcome` soon; `answer`, if given, gets the answer of the engine."""
        attempt.finished = True
        self._queue.append((attempt, outcome, answer))
        self._queued.set()
        self._all_recorded.clear()

    def recorded_by_handler(self, attempt: RunningAttempt) -> None:
        """The handler's transaction has recorded the outcome; its completion is dispatched soon."""
        self.discard(attempt)
        count_outcome(attempt, "ok")
        self._recorded += 1
        self._on_recorded(1)
        if attempt.is_member:
            self._any_member = True
            self._request_dispatch()

    def slot_freed(self, attempt: RunningAttempt) -> None:
        """The lease has ended: let the next execution of its limit go soon, if it has one."""
        if attempt.claimed.quota_key_id is not None:
            self._freed_keys.add(attempt.claimed.quota_key_id)
            self._request_dispatch()

    def discard(self, attempt: RunningAttempt) -> None:
        """Stop renewing the lease of an attempt that has no outcome to record."""
        attempt.finished = True
        self._held_leases.discard(attempt)
        self.slot_freed(attempt)

    async def drained(self) -> bool:
        """Wait until every outcome is recorded and dispatched; was there any since last time?"""
        await self._all_recorded.wait()
        await self._all_dispatched.wait()
        before, self._recorded_before = self._recorded_before, self._recorded
        return self._recorded > before

    async def some_recorded(self, within: float) -> None:
        """Wait until outcomes that are on their way are recorded, at most `within` seconds."""
        if not self._all_recorded.is_set():
            self._some_recorded.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._some_recorded.wait()

    async def run(self) -> None:
        """Record batch after batch, until cancelled."""
        while True:
            await self._queued.wait()
            batch, self._queue = self._queue[:BATCH], self._queue[BATCH:]
            if not self._queue:
                self._queued.clear()
            by_kind: dict[type, list[_Entry]] = {}
            for entry in batch:
                by_kind.setdefault(type(entry[1]), []).append(entry)
            for kind, entries in by_kind.items():
                await self._record(self._operations[kind], entries)
            self._some_recorded.set()
            self._on_recorded(len(batch))
            self._compensates |= any(
                attempt.compensates and isinstance(outcome, Failure)
                for attempt, outcome, _ in batch
            )
            self._any_member |= any(attempt.is_member for attempt, _, _ in batch)
            if self._compensates or self._any_member:
                self._request_dispatch()
            if not self._queue:
                self._all_recorded.set()

    async def dispatch(self) -> None:
        """Dispatch the completions of flow members to the joins that wait for them.

        Executions of limits are let go where a slot was freed, and compensations of executions
        that have failed are started. Runs until cancelled. What fails is left to the sweeps.
        """
        while True:
            await self._dispatch_due.wait()
            self._dispatch_due.clear()
            try:
                if self._freed_keys:
                    freed, self._freed_keys = self._freed_keys, set()
                    await self._engine.unblock_keys(freed)
                if self._any_member:
                    self._any_member = False
                    await self._engine.dispatch()
                if self._compensates:
                    self._compensates = False
                    await compensate(self._engine)
            except FlowFabricError as error:
                log.warning("completions could not be dispatched, left to the sweeps: %s", error)
            if not self._dispatch_due.is_set():
                self._all_dispatched.set()

    def _request_dispatch(self) -> None:
        self._all_dispatched.clear()
        self._dispatch_due.set()

    async def _record(self, operation: _Operation, entries: list[_Entry]) -> None:
        """Try until the engine has answered: each operation may be repeated with the same lease."""
        pause, repeats = 0.05, False
        while entries := [entry for entry in entries if not self._dropped(entry)]:
            try:
                answers = await operation([outcome for _, outcome, _ in entries])
            except Exception as error:
                if not _is_temporary(error):
                    await self._isolate(operation, entries, error)
                    return
                log.warning("cannot record %s outcomes yet: %s", len(entries), error)
                await asyncio.sleep(random.uniform(pause / 2, pause))
                pause, repeats = min(pause * 2, 5.0), True
                continue
            if repeats:
                answers = [
                    _answer_to_repeat(entry[1], answer)
                    for entry, answer in zip(entries, answers, strict=True)
                ]
            count_outcomes(entries, answers)
            for entry, answer in zip(entries, answers, strict=True):
                self._settle(entry, answer)
            return

    async def _isolate(
        self, operation: _Operation, entries: list[_Entry], error: Exception
    ) -> None:
        """Halve the batch until the outcome that fails is alone and the others are recorded."""
        if len(entries) == 1:
            log.error("the outcome of %s cannot be recorded: %s", entries[0][0], error)
            self._settle(entries[0], error)
            return
        middle = len(entries) // 2
        await self._record(operation, entries[:middle])
        await self._record(operation, entries[middle:])

    def _settle(self, entry: _Entry, answer: Any) -> None:
        """The engine has answered, or the lease is lost: the attempt is over for this worker."""
        attempt, outcome, future = entry
        self._held_leases.discard(attempt)
        self.slot_freed(attempt)
        self._recorded += 1
        if isinstance(outcome, Failure | Trouble):
            log_outcome(attempt, outcome, answer)
            attempt.error = None  # its frames refer to the attempt
        if future is not None and not future.done():
            future.set_result(answer)
        elif isinstance(answer, Exception):
            log_not_recorded(attempt, answer)

    def _dropped(self, entry: _Entry) -> bool:
        """Settle an outcome whose lease is known to be lost: the engine would refuse it."""
        if not entry[0].lost:
            return False
        self._settle(entry, None)
        return True


def _answer_to_repeat(outcome: Outcome, answer: Any) -> Any:
    """The answer to a call that was repeated because the first one got no answer.

    If the execution is runnable under the epoch of the lease, its own holder delayed it; under the
    next epoch the lease was released, or lost. Either way the outcome is as the holder wanted.
    """
    if not (isinstance(answer, ExecutionNotActive) and answer.lifecycle_phase == "runnable"):
        return answer
    later_epochs = answer.lease_epoch - _lease(outcome).lease_epoch
    if isinstance(outcome, DelayRequest) and later_epochs == 0:
        return Delayed(execution_id=answer.execution_id)
    if isinstance(outcome, Lease) and later_epochs == 1:
        return Released(execution_id=answer.execution_id)
    return answer


def _lease(outcome: Outcome) -> Lease:
    return outcome if isinstance(outcome, Lease) else outcome.lease


def _is_temporary(error: Exception) -> bool:
    """May the same call succeed later?"""
    if isinstance(error, OperationTimeout):
        return True
    return isinstance(error, FlowFabricError) and error.retryable
