"""Outcomes on their way to the database: gathered while the previous batch is in flight."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.cancel import Cancellation
from flowfabric.engine.lifecycle.complete import Completion
from flowfabric.engine.lifecycle.delay import Delayed, DelayRequest
from flowfabric.engine.lifecycle.fail import Failure
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.release import Released
from flowfabric.errors import ExecutionNotActive, FlowFabricError, OperationTimeout
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt, was_cancelled

log: Final = logging.getLogger("flowfabric.worker")
BATCH: Final = 500

Outcome: TypeAlias = Completion | Failure | DelayRequest | Cancellation | Lease
"""How an attempt ends; a bare lease is handed back."""

_Entry: TypeAlias = tuple[RunningAttempt, Outcome, "asyncio.Future[Any] | None"]


class OutcomeRecorder:
    """Takes outcomes and gets them recorded; what is in it keeps its lease until it is."""

    def __init__(self, engine: Engine, held_leases: HeldLeases) -> None:
        self._held_leases = held_leases
        self._waiting: list[_Entry] = []
        self._filled = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._ways: dict[type, Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]] = {
            Completion: engine.complete,
            Failure: engine.fail,
            DelayRequest: engine.delay,
            Cancellation: engine.cancel,
            Lease: engine.release,
        }
        self._engine = engine
        self._ended = asyncio.Event()
        self._carried = asyncio.Event()
        self._carried.set()
        self.recorded = 0
        self._drained_at = 0

    def put(
        self, running: RunningAttempt, outcome: Outcome, answer: asyncio.Future[Any] | None = None
    ) -> None:
        """Record `outcome` soon; `answer`, if given, gets what the engine said."""
        running.finished = True
        self._waiting.append((running, outcome, answer))
        self._filled.set()
        self._empty.clear()

    def recorded_elsewhere(self, running: RunningAttempt) -> None:
        """The outcome was committed by the handler; whoever waits for the member hears of it."""
        self.forget(running)
        self.recorded += 1
        if running.is_member:
            self._carry()

    def forget(self, running: RunningAttempt) -> None:
        """Let go of an execution whose lease is gone; there is nothing to record."""
        running.finished = True
        self._held_leases.discard(running)

    def _carry(self) -> None:
        self._carried.clear()
        self._ended.set()

    async def drained(self) -> bool:
        """Wait until everything put so far is recorded; was there something since the last time?"""
        await self._empty.wait()
        await self._carried.wait()
        since, self._drained_at = self.recorded - self._drained_at, self.recorded
        return since > 0

    async def run(self) -> None:
        """Record batch after batch, until cancelled."""
        while True:
            await self._filled.wait()
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            if not self._waiting:
                self._filled.clear()
            by_kind: dict[type, list[_Entry]] = {}
            for entry in batch:
                by_kind.setdefault(type(entry[1]), []).append(entry)
            for kind, entries in by_kind.items():
                await self._record(self._ways[kind], entries)
            if any(running.is_member for running, _, _ in batch):
                self._carry()
            if not self._waiting:
                self._empty.set()

    async def dispatch(self) -> None:
        """Carry the ends of flow members to whoever waits for them, until cancelled.

        What cannot be carried now is left to the sweeps.
        """
        while True:
            await self._ended.wait()
            self._ended.clear()
            try:
                await self._engine.dispatch()
            except FlowFabricError as error:
                log.warning("flows are left to the sweeps: %s", error)
            if not self._ended.is_set():
                self._carried.set()

    async def _record(
        self, way: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]], entries: list[_Entry]
    ) -> None:
        """Try until the engine has answered: every way is safe to repeat with the same lease."""
        pause, repeats = 0.05, False
        while entries := [entry for entry in entries if not self._dropped(entry)]:
            try:
                answers = await way([outcome for _, outcome, _ in entries])
            except Exception as error:
                if not _passing(error):
                    await self._isolate(way, entries, error)
                    return
                log.warning("outcomes could not be recorded yet: %s", error)
                await asyncio.sleep(random.uniform(pause / 2, pause))
                pause, repeats = min(pause * 2, 5.0), True
                continue
            for entry, answer in zip(entries, answers, strict=True):
                self._settle(entry, _unheard(entry[1], answer) if repeats else answer)
            return

    async def _isolate(
        self,
        way: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]],
        entries: list[_Entry],
        error: Exception,
    ) -> None:
        """One bad outcome must not hold up its neighbours: halve until it stands alone."""
        if len(entries) == 1:
            log.error("the outcome was refused: %s", error)
            self._settle(entries[0], error)
            return
        middle = len(entries) // 2
        await self._record(way, entries[:middle])
        await self._record(way, entries[middle:])

    def _settle(self, entry: _Entry, answer: Any) -> None:
        running, _, future = entry
        self._held_leases.discard(running)
        self.recorded += 1
        if future is not None and not future.done():
            future.set_result(answer)
        elif isinstance(answer, Exception):
            level = logging.INFO if was_cancelled(answer) else logging.WARNING
            execution_id = running.claimed.lease.execution_id
            log.log(level, "outcome of %s was not recorded: %s", execution_id, answer)

    def _dropped(self, entry: _Entry) -> bool:
        """An outcome whose lease is certainly gone is no longer worth a try."""
        if not entry[0].lost:
            return False
        self._settle(entry, None)
        return True


def _unheard(outcome: Outcome, answer: Any) -> Any:
    """The answer to a call that may have been made before; what was put down then was not refused.

    Under the epoch of the lease nobody but its holder has let go of the execution; under the next
    one it was handed back, or lost: either way what was wanted is so.
    """
    if not (isinstance(answer, ExecutionNotActive) and answer.lifecycle_phase == "runnable"):
        return answer
    passed = answer.lease_epoch - _lease(outcome).lease_epoch
    if isinstance(outcome, DelayRequest) and passed == 0:
        return Delayed(execution_id=answer.execution_id)
    if isinstance(outcome, Lease) and passed == 1:
        return Released(execution_id=answer.execution_id)
    return answer


def _lease(outcome: Outcome) -> Lease:
    return outcome if isinstance(outcome, Lease) else outcome.lease


def _passing(error: Exception) -> bool:
    """Will the same call go through later?"""
    if isinstance(error, OperationTimeout):
        return True
    return isinstance(error, FlowFabricError) and error.retryable
