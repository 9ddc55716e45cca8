"""Runs claimed attempts, at most `concurrency` at a time; the others wait in a buffer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from flowfabric.worker.outcome_recorder import OutcomeRecorder
from flowfabric.worker.run_attempt import HandlerOutcome, Recorded
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt
from flowfabric.worker.settings import WorkerSettings
from flowfabric.worker.threads import HandlerThreads

log: Final = logging.getLogger("flowfabric.worker")
CLEAN_UP_WITHIN: Final = 5.0
"""So many seconds a handler whose lease is lost keeps its slot, to clean up."""


class Slots:
    """The attempts of a worker that run now, and the buffer of those that were not begun."""

    def __init__(
        self,
        settings: WorkerSettings,
        run: Callable[[RunningAttempt], Awaitable[HandlerOutcome]],
        recorder: OutcomeRecorder,
        held_leases: HeldLeases,
        threads: HandlerThreads,
        *,
        capacity_freed: asyncio.Event,
        stopping: asyncio.Event,
        prepare: Callable[[Sequence[RunningAttempt]], None] = lambda _: None,
    ) -> None:
        """Set `capacity_freed` when an attempt has ended; begin none once `stopping` is set.

        `prepare` is called with attempts that are added, before they have a slot.
        """
        self._prepare = prepare
        self._settings, self._run = settings, run
        self._recorder, self._held_leases = recorder, held_leases
        self._threads = threads
        self._capacity_freed, self._stopping = capacity_freed, stopping
        self._buffer: deque[RunningAttempt] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_once = 1
        self._starts_more = False
        self._lent: dict[RunningAttempt, float] = {}
        """The attempts that are about to give up their lease, and since when."""
        self._run_seconds = 1.0
        self.running = 0
        """How many attempts run."""

    def __len__(self) -> int:
        """How many attempts run or are buffered."""
        return self.running + len(self._buffer)

    def capacity(self, claim_seconds: float) -> int:
        """How many executions to claim.

        That is the free slots, and as many as are expected to end while a claim of `claim_seconds`
        is on its way.
        """
        settings = self._settings
        ahead = 2 * settings.concurrency * claim_seconds / max(self._run_seconds, 1e-6)
        wanted = settings.concurrency + min(int(ahead), settings.prefetch)
        return wanted - len(self) + len(self._lent)

    def lend(self, attempt: RunningAttempt, lends: bool) -> None:
        """The slot of this attempt runs another one meanwhile, or is needed again.

        An attempt that goes on after all runs beside those in the slots: none is begun until one of
        them has ended. At most `prefetch` slots are lent, and those of attempts without a lease.
        """
        if not lends:
            self._lent.pop(attempt, None)
        elif attempt.lost or len(self._lent) < self._settings.prefetch:
            self._lent[attempt] = time.monotonic()
            self._start_tasks()
            self._capacity_freed.set()

    def add(self, attempts: Sequence[RunningAttempt]) -> None:
        """Run these attempts as soon as slots are free; release them if the worker stops."""
        self._prepare(attempts)
        self._buffer.extend(attempts)
        self._start_tasks()

    def add_or_release(self, attempts: list[RunningAttempt]) -> None:
        """Run as many of these attempts as there are free slots, and release the others."""
        free = 0 if self._stopping.is_set() else max(0, self._settings.concurrency - len(self))
        self.add(attempts[:free])
        for attempt in attempts[free:]:
            self._recorder.put(attempt, attempt.lease)

    async def wait(self, timeout: float) -> None:
        """Wait until no attempt runs, for `timeout` seconds at most."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=timeout)

    def release_buffered(self) -> None:
        """Release the executions that were claimed and not begun."""
        while self._buffer:
            attempt = self._buffer.popleft()
            self._recorder.put(attempt, attempt.lease)

    def _start_tasks(self) -> None:
        """Start tasks in free slots, as long as attempts are buffered.

        A task runs one attempt after the other until a handler waits, so one task is enough for
        handlers that do not wait. Once the tasks have run that far, in the next turn of the event
        loop, more are started: twice as many at once while handlers wait, and half as many while
        they do not.
        """
        if self._stopping.is_set():
            self.release_buffered()
        free = self._settings.concurrency - len(self._tasks) + len(self._lent)
        starting = min(free, len(self._buffer), self._at_once)
        for _ in range(starting):
            task = asyncio.create_task(self._run_buffered())
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        if starting > 0 and not self._starts_more:
            self._starts_more = True
            asyncio.get_running_loop().call_soon(self._start_more)

    def _start_more(self) -> None:
        self._starts_more = False
        if self.running:
            self._at_once = min(2 * self._at_once, self._settings.concurrency)
        else:
            self._at_once = max(1, self._at_once // 2)
        if self._buffer:
            self._start_tasks()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task has ended: its slot is free for another one, and for the next claim."""
        self._tasks.discard(task)
        self._start_tasks()
        self._capacity_freed.set()

    async def _run_buffered(self) -> None:
        """Run buffered attempts one after the other, until the buffer is empty."""
        task = asyncio.current_task()
        while self._buffer and not self._stopping.is_set():
            if len(self._tasks) - len(self._lent) > self._settings.concurrency:
                return  # the slot was lent, and its attempt has gone on
            attempt = self._buffer.popleft()
            if attempt.lost:
                self._held_leases.discard(attempt)
                continue
            if attempt.claimed.execution_kind in self._threads.exhausted:
                self._recorder.put(attempt, attempt.lease)
                continue
            attempt.slot, attempt.lend_slot = task, self.lend
            began = time.monotonic()
            self.running += 1
            try:
                outcome = await self._run(attempt)
            finally:
                self.running -= 1
                lent_at = self._lent.pop(attempt, None)
            attempt.slot = None
            if isinstance(outcome, Recorded):
                self._recorder.recorded_by_handler(attempt)
                outcome = None
            if attempt.lost or attempt.unwound:
                # This task was cancelled, perhaps with the CancelledError still to come: it ends
                # here, and a fresh task takes over its slot.
                self._held_leases.discard(attempt)
                return
            ended = time.monotonic() if lent_at is None else lent_at
            self._run_seconds += 0.02 * (ended - began - self._run_seconds)
            if outcome is None:
                self._held_leases.discard(attempt)
                self._recorder.slot_freed(attempt)
            else:
                self._recorder.put(attempt, outcome)
            self._capacity_freed.set()


def stop_handler(attempt: RunningAttempt) -> None:
    """Cancel the handler of an attempt whose lease is lost.

    If it has not ended after `CLEAN_UP_WITHIN`, its slot runs another one meanwhile.
    """
    slot = attempt.slot
    if slot is None:
        return
    slot.cancel()

    def give_up_slot() -> None:
        if attempt.slot is slot and not slot.done() and attempt.lend_slot is not None:
            log.warning("%s does not end although its lease is lost: its slot is given up", attempt)
            attempt.lend_slot(attempt, True)

    asyncio.get_running_loop().call_later(CLEAN_UP_WITHIN, give_up_slot)
