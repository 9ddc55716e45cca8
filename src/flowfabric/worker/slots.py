"""Runs claimed attempts, at most `concurrency` at a time; the others wait in a buffer."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from flowfabric.worker.outcome_recorder import OutcomeRecorder
from flowfabric.worker.run_attempt import HandlerOutcome, Recorded
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt
from flowfabric.worker.settings import WorkerSettings
from flowfabric.worker.threads import HandlerThreads


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
    ) -> None:
        """Set `capacity_freed` when an attempt has ended; begin none once `stopping` is set."""
        self._settings, self._run = settings, run
        self._recorder, self._held_leases = recorder, held_leases
        self._threads = threads
        self._capacity_freed, self._stopping = capacity_freed, stopping
        self._buffer: deque[RunningAttempt] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._run_seconds = 1.0

    def __len__(self) -> int:
        """How many attempts run or are buffered."""
        return len(self._tasks) + len(self._buffer)

    @property
    def running(self) -> int:
        return len(self._tasks)

    def capacity(self, claim_seconds: float) -> int:
        """How many executions to claim.

        That is the free slots, and as many as are expected to end while a claim of `claim_seconds`
        is on its way.
        """
        settings = self._settings
        ahead = 2 * settings.concurrency * claim_seconds / max(self._run_seconds, 1e-6)
        return settings.concurrency + min(int(ahead), settings.prefetch) - len(self)

    def add(self, attempts: Iterable[RunningAttempt]) -> None:
        """Run these attempts as soon as slots are free; release them if the worker stops."""
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
        """Start a task for each free slot, as long as attempts are buffered."""
        if self._stopping.is_set():
            self.release_buffered()
        free = self._settings.concurrency - len(self._tasks)
        for _ in range(min(free, len(self._buffer))):
            task = asyncio.create_task(self._run_buffered(self._buffer.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task has ended: its slot is free for another one, and for the next claim."""
        self._tasks.discard(task)
        self._start_tasks()
        self._capacity_freed.set()

    async def _run_buffered(self, first: RunningAttempt) -> None:
        """Run `first`, then buffered attempts one after the other, until the buffer is empty."""
        task = asyncio.current_task()
        self._buffer.appendleft(first)
        while self._buffer and not self._stopping.is_set():
            attempt = self._buffer.popleft()
            if attempt.lost:
                self._held_leases.discard(attempt)
                continue
            if attempt.claimed.execution_kind in self._threads.exhausted:
                self._recorder.put(attempt, attempt.lease)
                continue
            attempt.slot = task
            began = time.monotonic()
            outcome = await self._run(attempt)
            attempt.slot = None
            if isinstance(outcome, Recorded):
                self._recorder.recorded_by_handler(attempt)
                outcome = None
            if attempt.lost:
                # This task was cancelled, perhaps with the CancelledError still to come: it ends
                # here, and a fresh task takes over its slot.
                self._held_leases.discard(attempt)
                return
            self._run_seconds += 0.02 * (time.monotonic() - began - self._run_seconds)
            if outcome is None:
                self._held_leases.discard(attempt)
            else:
                self._recorder.put(attempt, outcome)
            self._capacity_freed.set()
