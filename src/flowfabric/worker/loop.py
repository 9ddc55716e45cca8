"""The worker process: claim into a small buffer, run in slots, record in batches, stop in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, Self, TypeVar

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.listen import Listener
from flowfabric.db.waiter import Waiter
from flowfabric.engine.engine import Engine
from flowfabric.engine.lifecycle.claim import MAX_BATCH
from flowfabric.engine.lifecycle.sql.lease import Claimed
from flowfabric.errors import FlowFabricError
from flowfabric.reconcile.loop import reconcile
from flowfabric.worker.claimed_task import ClaimedTask
from flowfabric.worker.handler import Handler
from flowfabric.worker.outcome_recorder import OutcomeRecorder
from flowfabric.worker.renewer import Renewer, register
from flowfabric.worker.run_attempt import Recorded, run_attempt
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt, was_cancelled
from flowfabric.worker.settings import WorkerSettings
from flowfabric.worker.transaction import Transactions

log: Final = logging.getLogger("flowfabric.worker")
_STOP_WITHIN: Final = 2.0
_POLL_LISTENING: Final = 3.0
_FIRST_PAUSE: Final = 0.05

T = TypeVar("T")


class Worker:
    """Runs handlers until told to stop. One use: after it has stopped, make another."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        database: DatabaseConfig,
        settings: WorkerSettings,
        state: SimpleNamespace | None = None,
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.settings = settings
        self.instance = settings.instance_id()
        self.state = state or SimpleNamespace()
        self.handlers = dict(handlers)
        # An execution whose worker freezes in a transaction is free when its lease is.
        patience = min(database.idle_transaction_timeout, settings.lease_ttl)
        self._database = msgspec.structs.replace(database, idle_transaction_timeout=patience)
        self._on_close = on_close
        self._claimant = settings.claimant(kinds=tuple(self.handlers), instance=self.instance)
        self._transactions = Transactions(
            self._database, at_once=settings.transactions, role=f"handlers of {self.instance}"[:60]
        )
        self._held_leases = HeldLeases()
        self._buffer: deque[RunningAttempt] = deque()
        self._slots: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._started = asyncio.Event()
        self._room_made = asyncio.Event()
        self._background: asyncio.Task[None] | None = None
        self._refill: Callable[[], None] = lambda: None
        self._until_idle = False
        self._claim_seconds = 0.01
        self._run_seconds = 1.0

    # The ways to run it.

    async def run(self, *, handle_signals: bool = True) -> None:
        """Claim and run until `stop()`, or a SIGTERM or SIGINT; then drain.

        Draining stops claiming, lets handlers finish for `drain` seconds with their leases renewed,
        then cancels them and hands back what is left. A second signal ends the process at once.
        """
        with self._signals() if handle_signals else contextlib.nullcontext():
            async with self._running() as (engine, recorder, waiter):
                await self._claim_until_stopped(engine, recorder, waiter)

    async def run_until_idle(self) -> None:
        """Run everything that is claimable now, and what that makes claimable; then stop."""
        self._until_idle = True
        await self.run(handle_signals=False)

    def stop(self) -> None:
        """Begin to drain; `run` returns when that is done."""
        self._stopping.set()
        self._room_made.set()

    async def __aenter__(self) -> Self:
        """Run in the background; raises what keeps it from starting."""
        self._background = asyncio.create_task(self.run(handle_signals=False), name="worker")
        started = asyncio.create_task(self._started.wait())
        await asyncio.wait((self._background, started), return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._background.done():
            await self._background
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        if self._background is not None:
            await self._background

    async def tasks(self) -> AsyncGenerator[ClaimedTask]:
        """Claim one execution after the other and leave running it to the caller.

        At most `concurrency` are out at a time. Leaving `async with task` without having ended it
        hands it back.
        """
        async with self._running() as (engine, recorder, waiter):
            while not self._stopping.is_set():
                if len(self._held_leases) >= self.settings.concurrency:
                    self._room_made.clear()
                    await self._room_made.wait()
                    continue
                claimed = await self._claim(engine, 1, any_kind=not self.handlers)
                if not claimed:
                    if self._until_idle:
                        return
                    await self._wait_for_work(waiter)
                    continue
                running = self._hold(claimed[0])
                yield ClaimedTask(running, engine, recorder, on_end=self._room_made.set)

    # The parts.

    @contextlib.asynccontextmanager
    async def _running(self) -> AsyncGenerator[tuple[Engine, OutcomeRecorder, Waiter]]:
        """Everything around the claim loop: started in order, stopped in the opposite one."""
        settings = self.settings
        engine = await Engine.connect(self._database, role=f"worker {self.instance}"[:60])
        listener = Listener(self._database)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(engine.close)
            stack.push_async_callback(self._transactions.close)
            if self._on_close is not None:
                stack.push_async_callback(self._on_close)
            await engine.register_lanes(
                settings.lanes, registered_by=f"worker {settings.worker_id}"
            )
            async with engine.pool.connection() as conn:
                await register(conn, settings, self.instance, tuple(self.handlers))
            renewer = Renewer(
                self._database,
                settings,
                self.instance,
                tuple(self.handlers),
                self._held_leases,
                self._lose,
            )
            renewer.start()
            stack.push_async_callback(renewer.stop)
            listener.start()
            stack.push_async_callback(listener.close)
            if settings.reconcile:
                stack.push_async_callback(_cancelled, asyncio.create_task(reconcile(engine.pool)))
            recorder = OutcomeRecorder(engine, self._held_leases)
            recording = asyncio.create_task(recorder.run(), name="flowfabric recorder")
            stack.push_async_callback(_cancelled, recording)
            carrying = asyncio.create_task(recorder.dispatch(), name="flowfabric dispatch")
            stack.push_async_callback(_cancelled, carrying)
            waiter = Waiter(
                engine.pool,
                listener,
                [f"lane:{lane}" for lane in settings.lanes],
                name=self.instance,
                poll=_POLL_LISTENING,
                first_pause=_FIRST_PAUSE,
            )
            stack.push_async_callback(waiter.close)
            log.info("worker %s serves %s", self.instance, ", ".join(settings.lanes))
            self._started.set()
            try:
                yield engine, recorder, waiter
            finally:
                await self._drain(recorder)
        log.info("worker %s stopped", self.instance)

    async def _claim_until_stopped(
        self, engine: Engine, recorder: OutcomeRecorder, waiter: Waiter
    ) -> None:
        self._refill = partial(self._fill_slots, engine, recorder)
        while not self._stopping.is_set():
            room = self._room()
            if room <= 0:
                self._room_made.clear()
                await self._room_made.wait()
                continue
            claimed = await self._unless_stopped(self._claim(engine, min(room, MAX_BATCH))) or []
            for one in claimed:
                self._buffer.append(self._hold(one))
            self._refill()
            if claimed:
                await waiter.busy()
            elif self._until_idle and (self._buffer or self._slots):
                self._room_made.clear()
                await self._room_made.wait()
            elif self._until_idle:
                if not await recorder.drained():
                    return
            else:
                await self._wait_for_work(waiter)

    async def _claim(self, engine: Engine, limit: int, *, any_kind: bool = False) -> list[Claimed]:
        """Claim; a database in trouble is logged and waited for, never the end of the worker."""
        claimant = self._claimant
        if any_kind:
            claimant = self.settings.claimant(kinds=None, instance=self.instance)
        pause = 0.1
        while not self._stopping.is_set():
            self._claim_sent_at = began = time.monotonic()
            try:
                claimed = await engine.claim(claimant, ttl=self.settings.lease_ttl, limit=limit)
            except FlowFabricError as error:
                log.warning("cannot claim: %s", error)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(random.uniform(0, pause)):
                        await self._stopping.wait()
                pause = min(pause * 2, 10.0)
                continue
            self._claim_seconds += 0.2 * (time.monotonic() - began - self._claim_seconds)
            return claimed
        return []

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`; None if it takes much longer than the order to stop."""
        doing, stopping = asyncio.create_task(work), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                await asyncio.wait((doing,), timeout=_STOP_WITHIN)
            return doing.result() if doing.done() else None
        finally:
            stopping.cancel()
            doing.cancel()

    async def _wait_for_work(self, waiter: Waiter) -> None:
        """Return when there may be work, or at once when told to stop."""
        waiting = asyncio.create_task(waiter.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not waiting.done():
                await _cancelled(waiting)
        if waiting.done() and not waiting.cancelled():
            waiting.result()

    def _room(self) -> int:
        """How many to claim: the free slots, and what will finish while the claim is on its way."""
        settings = self.settings
        ahead = 2 * settings.concurrency * self._claim_seconds / max(self._run_seconds, 1e-6)
        wanted = settings.concurrency + min(int(ahead), settings.prefetch)
        return wanted - len(self._slots) - len(self._buffer)

    def _hold(self, claimed: Claimed) -> RunningAttempt:
        running = RunningAttempt(claimed, self._claim_sent_at)
        self._held_leases.add(running)
        return running

    def _fill_slots(self, engine: Engine, recorder: OutcomeRecorder) -> None:
        """Start as many slots as there is work and room for, each with what it runs first."""
        free = self.settings.concurrency - len(self._slots)
        for _ in range(min(free, len(self._buffer))):
            slot = asyncio.create_task(self._work(engine, recorder, self._buffer.popleft()))
            self._slots.add(slot)
            slot.add_done_callback(self._free)

    def _free(self, slot: asyncio.Task[None]) -> None:
        """A slot has ended; only now is there room, so only now may the claim loop look."""
        self._slots.discard(slot)
        if self._buffer and not self._stopping.is_set():
            self._refill()
        self._room_made.set()

    async def _work(self, engine: Engine, recorder: OutcomeRecorder, first: RunningAttempt) -> None:
        """One slot: run `first`, then what is buffered, one after the other, until nothing is."""
        this = asyncio.current_task()
        self._buffer.appendleft(first)
        while self._buffer and not self._stopping.is_set():
            running = self._buffer.popleft()
            if running.lost:
                self._held_leases.discard(running)
                continue
            running.slot = this
            began = time.monotonic()
            outcome = await run_attempt(
                running,
                self.handlers[running.claimed.execution_kind],
                engine,
                self.state,
                self._transactions,
            )
            running.slot = None
            if isinstance(outcome, Recorded):
                recorder.recorded_elsewhere(running)
                outcome = None
            if running.lost:
                # The slot was cancelled, perhaps with the cancellation still to come: it ends here,
                # and a fresh one takes its place.
                self._held_leases.discard(running)
                return
            self._run_seconds += 0.02 * (time.monotonic() - began - self._run_seconds)
            if outcome is not None:
                recorder.put(running, outcome)
            else:
                self._held_leases.discard(running)
            self._room_made.set()

    def _lose(self, running: RunningAttempt, why: Exception) -> None:
        """The renewer found a lease gone."""
        if running.finished:
            return
        execution_id = running.claimed.lease.execution_id
        if was_cancelled(why):
            log.info("%s was cancelled while it ran", execution_id)
        else:
            log.warning("lost the lease of %s: %s", execution_id, why)
        if running.on_lost is not None:
            running.on_lost.set()
        if running.slot is not None and self.settings.on_lease_lost == "cancel":
            running.slot.cancel()

    async def _drain(self, recorder: OutcomeRecorder) -> None:
        """Hand back what was not begun, wait for what runs, then hand back the rest."""
        self._stopping.set()
        while self._buffer:
            running = self._buffer.popleft()
            recorder.put(running, running.claimed.lease)
        if self._slots:
            log.info("draining: %s handlers still run", len(self._slots))
            await asyncio.wait(tuple(self._slots), timeout=self.settings.drain)
        for running in self._held_leases:
            if not running.finished:
                log.warning("handing back %s", running.claimed.lease.execution_id)
                slot, running.abandoned = running.slot, True
                recorder.put(running, running.claimed.lease)
                if slot is not None:
                    slot.cancel()
        if self._slots:
            await asyncio.wait(tuple(self._slots), timeout=1.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.lease_ttl):
                await recorder.drained()

    @contextlib.contextmanager
    def _signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        caught = 0

        def stop() -> None:
            nonlocal caught
            caught += 1
            if caught > 1:
                raise SystemExit(130)
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


async def _cancelled(task: asyncio.Task[None]) -> None:
    """End a task; one that hangs on a dead line is left to the closing of its connection."""
    task.cancel()
    await asyncio.wait((task,), timeout=_STOP_WITHIN)
