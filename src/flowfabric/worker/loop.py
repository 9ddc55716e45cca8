"""The worker process: claims executions, runs them in slots, stops in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from flowfabric.config import DatabaseConfig
from flowfabric.counters import SHUTDOWN_TIMEOUTS, WORKER_AT_CAPACITY
from flowfabric.engine.lifecycle.claim import MAX_BATCH
from flowfabric.errors import FlowFabricError
from flowfabric.tracing import tracer
from flowfabric.worker.background import STOP_WITHIN, cancel, start
from flowfabric.worker.claimed_task import ClaimedTask
from flowfabric.worker.claims import Claims
from flowfabric.worker.count_outcomes import count_outcome
from flowfabric.worker.durable.services import DurableServices
from flowfabric.worker.frozen_heap import frozen_heap
from flowfabric.worker.handler import Handler
from flowfabric.worker.idleness import Idleness
from flowfabric.worker.lease_vacuum import LeaseVacuum
from flowfabric.worker.link import link_to
from flowfabric.worker.log_outcomes import log_lease_lost
from flowfabric.worker.next_work import NextRemoteWork, NextWork
from flowfabric.worker.outcome_recorder import OutcomeRecorder
from flowfabric.worker.renewer import Renewer
from flowfabric.worker.run_attempt import HandlerOutcome, run_attempt
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt, was_cancelled
from flowfabric.worker.settings import WorkerSettings
from flowfabric.worker.signals import stop_on_signals
from flowfabric.worker.slots import Slots, stop_handler
from flowfabric.worker.threads import HandlerThreads
from flowfabric.worker.trace_attempt import trace_attempt
from flowfabric.worker.unanswered_claims import UnansweredClaims

if TYPE_CHECKING:
    from flowfabric.remote.address import ServerAddress
    from flowfabric.remote.engine_like import EngineLike

log: Final = logging.getLogger("flowfabric.worker")
_LOOK_EVERY: Final = 0.2
_RECORDED_WITHIN: Final = 0.05
"""Seconds that a claim waits for outcomes, after one that limits may have cut short."""

T = TypeVar("T")


class _Parts(NamedTuple):
    """What a running worker consists of, beside the tasks in the background."""

    engine: EngineLike
    recorder: OutcomeRecorder
    slots: Slots
    next_work: NextWork | NextRemoteWork


class Worker:
    """Runs handlers until it is stopped. A worker runs once; create another to run again."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        database: DatabaseConfig | ServerAddress,
        settings: WorkerSettings,
        state: SimpleNamespace | None = None,
        threads: HandlerThreads | None = None,
        on_close: Callable[[], Awaitable[None]] | None = None,
        on_start: Callable[[EngineLike, str], Awaitable[None]] | None = None,
        built_in: Iterable[Handler] = (),
    ) -> None:
        """Kinds that are `built_in` are served beside others, but not by `tasks()`."""
        self.settings = settings
        self.instance = settings.instance_id()
        self.state = state or SimpleNamespace()
        self.handlers = dict(handlers)
        own = {each.kind: each for each in built_in} if handlers else {}
        self._served = {**self.handlers, **own}
        self._on_close, self._on_start = on_close, on_start
        self._threads = threads or HandlerThreads(settings.sync_workers)
        self._held_leases = HeldLeases()
        self._link = link_to(database, settings, self.instance)
        self._transactions = self._link.transactions(self._held_leases)
        self._stopping = asyncio.Event()
        self._unanswered = UnansweredClaims(
            self.instance,
            self._held_leases,
            lease_ttl=settings.lease_ttl,
            running_for=self._link.calls_run_for + STOP_WITHIN,
        )
        self._claims = self._claims_of(tuple(self._served))
        self._started = asyncio.Event()
        self._capacity_freed = asyncio.Event()
        self._background: asyncio.Task[None] | None = None
        self._until_idle = False
        self._idleness = Idleness(settings.lease_ttl, sweeps=settings.reconcile)

    def _claims_of(self, kinds: tuple[str, ...] | None) -> Claims:
        return Claims(
            self.settings.claimant(kinds=kinds, instance=self.instance),
            lease_ttl=self.settings.lease_ttl,
            held_leases=self._held_leases,
            unanswered=self._unanswered,
            threads=self._threads,
            stopping=self._stopping,
        )

    # The ways to run a worker.

    async def run(self, *, handle_signals: bool = True) -> None:
        """Claim and run executions until `stop()`, or a SIGTERM or SIGINT; then drain.

        Draining stops claiming, lets handlers finish for `drain` seconds with their leases renewed,
        then cancels the others and releases their executions. A second signal ends the process at
        once.
        """
        with contextlib.ExitStack() as process:
            if handle_signals:  # the process is this worker's own
                process.enter_context(stop_on_signals(self.stop))
                process.enter_context(frozen_heap())
            async with self._running() as parts:
                await self._claim_until_stopped(parts)

    async def run_until_idle(self) -> None:
        """Run every execution that is claimable, also those that become so meanwhile; then stop.

        Executions whose worker died become claimable when their lease expires, and are waited for:
        as long as a lease expires within one `lease_ttl` and its holder does not renew it.
        """
        self._until_idle = True
        await self.run(handle_signals=False)

    def stop(self) -> None:
        """Begin to drain; `run` returns when draining is done."""
        self._stopping.set()
        self._capacity_freed.set()

    async def __aenter__(self) -> Self:
        """Run in the background; raises the error that prevents the start."""
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
        """Claim executions one after the other, for the caller to run.

        At most `concurrency` are claimed at a time. An `async with task` block that ends
        without an outcome releases the execution.
        """
        found: deque[RunningAttempt] = deque()
        claims = self._claims_of(tuple(self.handlers) or None)
        async with self._running(found) as parts:
            while not self._stopping.is_set():
                if found:
                    claimed = [found.popleft()]
                elif len(self._held_leases) >= self.settings.concurrency:
                    await self._wait_for_capacity()
                    continue
                else:
                    claimed = await parts.next_work.claim(claims, parts.engine, 1)
                if not claimed:
                    if not found:
                        await parts.next_work.wait(claims.claimant())
                    continue
                [attempt] = claimed
                yield ClaimedTask(
                    attempt, parts.engine, parts.recorder, on_end=self._capacity_freed.set
                )

    # Starting and stopping.

    @contextlib.asynccontextmanager
    async def _running(
        self, by_hand: deque[RunningAttempt] | None = None
    ) -> AsyncGenerator[_Parts]:
        """Start everything around the claim loop in order; stop it in the opposite order.

        Executions that the worker finds it has claimed are run, or added to `by_hand` if given.
        """
        settings, link = self.settings, self._link
        engine = await link.connect()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(engine.close)
            stack.push_async_callback(self._transactions.close)
            if self._on_close is not None:
                stack.push_async_callback(self._on_close)
            kinds = tuple(self._served if by_hand is None else self.handlers)
            renewer = await self._start_renewer(engine, stack, kinds)
            self._held_leases.on_superseded = renewer.look_for_lost_leases
            link.start(stack, renewer.look_for_lost_leases)
            vacuum = LeaseVacuum(engine)
            recorder = OutcomeRecorder(engine, self._held_leases, vacuum.ended)
            start(stack, recorder.run(), "flowfabric recorder")
            start(stack, recorder.dispatch(), "flowfabric dispatch")
            start(stack, vacuum.run(), "flowfabric vacuum")
            next_work = link.next_work(stack, self._stopping)
            services = DurableServices(engine, self._threads)
            stack.push_async_callback(services.close)
            slots = self._slots(engine, recorder, services)

            def found(attempts: list[RunningAttempt]) -> None:
                if by_hand is None:
                    slots.add_or_release(attempts)
                else:
                    by_hand.extend(attempts)
                    self._capacity_freed.set()
                    next_work.wake()

            def threads_changed() -> None:
                if not self._stopping.is_set():
                    renewer.send_heartbeat()
                    self._capacity_freed.set()
                    next_work.wake()

            self._threads.on_change = threads_changed
            start(stack, self._unanswered.run(engine, found), "flowfabric claims")
            facts = {"worker_id": settings.worker_id, "instance_id": self.instance}
            served = {**facts, "lanes": list(settings.lanes)}
            log.info("worker %s serves %s", self.instance, ", ".join(settings.lanes), extra=served)
            self._started.set()
            try:
                yield _Parts(engine, recorder, slots, next_work)
            finally:
                self._stopping.set()
                await self._unanswered.stop(engine, found)
                await self._drain(recorder, slots)
        log.info("worker %s stopped", self.instance, extra=facts)

    async def _start_renewer(
        self, engine: EngineLike, stack: contextlib.AsyncExitStack, kinds: tuple[str, ...]
    ) -> Renewer:
        """Register the lanes and the worker, and renew leases and registration until the end."""
        settings = self.settings
        await engine.register_lanes(settings.lanes, registered_by=f"worker {settings.worker_id}")
        if self._on_start is not None:
            await self._on_start(engine, self.instance)
        await engine.register_worker(**settings.registration(self.instance, kinds))
        renewer = Renewer(
            self._link.target,
            settings,
            self.instance,
            kinds,
            self._held_leases,
            self._threads,
            self._lease_lost,
        )
        stack.push_async_callback(renewer.stop)
        try:
            await renewer.start()
        except FlowFabricError:
            await engine.mark_worker_dead(
                self.instance, reason="could not start", namespace=settings.namespace
            )
            raise
        return renewer

    def _slots(
        self, engine: EngineLike, recorder: OutcomeRecorder, services: DurableServices
    ) -> Slots:
        readers = {kind: handler.read_result for kind, handler in self.handlers.items()}

        def run(attempt: RunningAttempt) -> Coroutine[Any, Any, HandlerOutcome]:
            handler = self._served[attempt.claimed.execution_kind]
            running = run_attempt(
                attempt, handler, engine, self.state, self._transactions, readers, services
            )
            traced_by = tracer()
            return running if traced_by is None else trace_attempt(traced_by, attempt, running)

        return Slots(
            self.settings,
            run,
            recorder,
            self._held_leases,
            self._threads,
            capacity_freed=self._capacity_freed,
            stopping=self._stopping,
            prepare=services.reading_ahead(self._served),
        )

    def _lease_lost(self, attempt: RunningAttempt, reason: Exception) -> None:
        """Stop the handler of an attempt whose lease the renewer found lost."""
        if attempt.finished:
            return
        if was_cancelled(reason):
            count_outcome(attempt, "cancelled")
        log_lease_lost(attempt, reason)
        if attempt.on_lost is not None:
            attempt.on_lost.set()
        if self.settings.on_lease_lost == "cancel":
            stop_handler(attempt)

    async def _drain(self, recorder: OutcomeRecorder, slots: Slots) -> None:
        """Release buffered executions, wait for running handlers, then release the others."""
        slots.release_buffered()
        if slots.running:
            running = "1 handler runs" if slots.running == 1 else f"{slots.running} handlers run"
            log.info("worker %s drains: %s", self.instance, running)
            await slots.wait(self.settings.drain)
        unfinished = [each for each in self._held_leases if not each.finished]
        if unfinished:
            SHUTDOWN_TIMEOUTS.add()
        for attempt in unfinished:
            log.warning("releasing %s: it did not end while draining", attempt)
            slot = attempt.slot
            recorder.put(attempt, attempt.lease)
            if slot is not None:
                slot.cancel()
        await slots.wait(1.0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.lease_ttl):
                await recorder.drained()

    # Claiming.

    async def _claim_until_stopped(self, parts: _Parts) -> None:
        engine, recorder, slots, next_work = parts
        at_capacity = False
        while not self._stopping.is_set():
            limit = min(slots.capacity(self._claims.seconds), MAX_BATCH)
            if limit <= 0:
                if not at_capacity:
                    WORKER_AT_CAPACITY.add()
                at_capacity = True
                await self._wait_for_capacity()
                continue
            at_capacity = False
            claiming = next_work.claim(self._claims, engine, limit, wait=not self._until_idle)
            claimed = await self._unless_stopped(claiming) or []
            slots.add(claimed)
            if claimed:
                self._idleness.busy()
                await next_work.found()
                if len(claimed) < limit and any(
                    each.claimed.quota_key_id is not None for each in claimed
                ):
                    # Limits may have cut it short: another claim finds more when slots are free.
                    await recorder.some_recorded(_RECORDED_WITHIN)
            elif not self._until_idle:
                await next_work.wait(self._claims.claimant())
            elif len(slots):
                await self._wait_for_capacity_or(next_work)
            elif not await recorder.drained() and not await self._idleness.wakes(engine):
                if await self._idleness.reached(engine, self._claims.claimant()):
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_EVERY):
                        await self._stopping.wait()

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`; None if it takes much longer than a stop that comes meanwhile."""
        working, stopping = asyncio.create_task(work), asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await asyncio.wait((working,), timeout=STOP_WITHIN)
            return working.result() if working.done() else None
        finally:
            stopping.cancel()
            working.cancel()
            if not working.done():
                await asyncio.wait((working,), timeout=STOP_WITHIN)

    async def _wait_for_capacity(self) -> None:
        """Wait until an attempt has ended, or the worker is stopped."""
        self._capacity_freed.clear()
        await self._capacity_freed.wait()

    async def _wait_for_capacity_or(self, next_work: NextWork | NextRemoteWork) -> None:
        """Wait until an attempt has ended, there may be something to claim, or a stop."""
        waits = [
            asyncio.create_task(self._wait_for_capacity()),
            asyncio.create_task(next_work.wait(self._claims.claimant())),
        ]
        try:
            ended, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in ended:
                await each
        finally:
            for each in waits:
                await cancel(each)
