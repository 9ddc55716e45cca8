"""Renews every held lease, in a thread and on a connection of its own.

A handler that blocks the event loop does not stop the renewals. A lease counts as lost when the
engine refuses to renew it, or when no renewal has succeeded for 0.8 TTL by this machine's clock.

The connection holds the lock of the worker process, unless it leads through a pooler: when it ends
and is not replaced soon, the process counts as dead. So it is replaced at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from flowfabric.config import DatabaseConfig
from flowfabric.counters import LEASE_RENEWALS
from flowfabric.errors import FlowFabricError, LeaseLost
from flowfabric.worker.loop_watch import LoopWatch
from flowfabric.worker.renewal_schedule import RenewalSchedule
from flowfabric.worker.renewals import RenewalConnection, open_renewals
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt
from flowfabric.worker.settings import WorkerSettings
from flowfabric.worker.threads import HandlerThreads

if TYPE_CHECKING:
    from flowfabric.remote.address import ServerAddress

log: Final = logging.getLogger("flowfabric.worker")
_LOST_AFTER: Final = 0.8
"""The share of the TTL without a renewal after which a lease counts as lost."""
_MARK_STOPPED_WITHIN: Final = 2.0
_CLOSED_WITHIN: Final = 1.0


class Renewer:
    """Runs from `start` to `stop`; calls `on_lost` on the event loop that created it."""

    def __init__(
        self,
        target: DatabaseConfig | ServerAddress,
        settings: WorkerSettings,
        instance: str,
        kinds: tuple[str, ...],
        held_leases: HeldLeases,
        threads: HandlerThreads,
        on_lost: Callable[[RunningAttempt, Exception], None],
    ) -> None:
        self._target, self._settings = target, settings
        self._instance, self._kinds = instance, kinds
        self._held_leases, self._threads, self._on_lost = held_leases, threads, on_lost
        self._schedule = RenewalSchedule(settings.lease_ttl, time.monotonic())
        self._owner_loop = asyncio.get_running_loop()
        self._loop_watch = LoopWatch(self._owner_loop)
        self._thread = threading.Thread(target=self._main, name="flowfabric renewer", daemon=True)
        self._started: Future[None] = Future()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._conn: RenewalConnection | None = None
        self._heartbeat_now = False
        self._holds_lock = isinstance(target, DatabaseConfig) and not target.direct().pooler

    async def start(self) -> None:
        """Renew from now on; raises the error that keeps the renewer from connecting.

        The connection is opened before any execution is claimed, and kept: a worker that cannot
        have one, because the server's limit is reached, would lose every lease later.
        """
        self._thread.start()
        await asyncio.wrap_future(self._started)

    async def stop(self) -> None:
        """Mark the worker as stopped in the registry and end the thread."""
        self._stopping.set()
        self._wake_up()
        await asyncio.to_thread(self._thread.join, 10.0)

    def send_heartbeat(self) -> None:
        """Send one soon, because what it reports has changed; at most one a second."""
        self._heartbeat_now = True
        self._wake_up()

    def look_for_lost_leases(self) -> None:
        """Look soon which leases were ended by a decision elsewhere.

        May be called in any thread and as often as there are decisions: one look answers many.
        """
        self._schedule.ask_for_look()
        self._wake_up()

    def _wake_up(self) -> None:
        if self._loop is not None and self._wake is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                self._loop.call_soon_threadsafe(self._wake.set)

    def _main(self) -> None:
        asyncio.run(self._renew_until_stopped())

    async def _renew_until_stopped(self) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        self._started.set_running_or_notify_cancel()
        try:
            self._conn = await self._connect()
        except BaseException as error:
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        while not self._stopping.is_set():
            self._loop_watch.ask()
            oldest, now = self._oldest(), time.monotonic()
            next_at = self._schedule.next_at(oldest)
            if self._lock_is_lost():
                next_at = self._schedule.reconnect_at
            due_at = min(next_at, self._lost_at(oldest))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, due_at - now)):
                    await self._wake.wait()
            self._wake.clear()
            if self._heartbeat_now:
                self._heartbeat_now = False
                self._schedule.heartbeat_soon(time.monotonic())
            self._mark_overdue_lost()
            if not self._stopping.is_set():
                await self._do_what_is_due()
        await self._mark_stopped()
        # Sessions of HTTP that were given up are closed by tasks, which end with the loop.
        if closing := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(closing, timeout=_CLOSED_WITHIN)

    async def _do_what_is_due(self) -> None:
        """Renew, look for lost leases and send a heartbeat, each if it is due; until one fails.

        Leases that are lost meanwhile make no try more urgent: tries that fail have pauses between
        them, however long the database is away.
        """
        schedule, oldest, now = self._schedule, self._oldest(), time.monotonic()
        if self._lock_is_lost() and not await self._reconnected(oldest, now):
            return
        if schedule.renewal_is_due(oldest, now):
            within = min(schedule.every, max(0.05, self._lost_at(oldest) - now))
            if not await self._done(self._renew, "renew its leases", within, renewal=True):
                return
        for is_due, work, purpose in (
            (schedule.look_is_due, self._look, "look for lost leases"),
            (schedule.heartbeat_is_due, self._heartbeat, "send a heartbeat"),
        ):
            now = time.monotonic()
            within = schedule.seconds_until_renewal(self._oldest(), now)
            if is_due(now) and not await self._done(work, purpose, within):
                return

    def _lock_is_lost(self) -> bool:
        return self._holds_lock and (self._conn is None or self._conn.is_closed)

    async def _reconnected(self, oldest: float | None, now: float) -> bool:
        """Is there a connection again, with the lock? False too if a try is not due yet."""
        schedule = self._schedule
        if now < schedule.reconnect_at:
            return False
        renewal = schedule.renewal_is_due(oldest, now)
        purpose = "renew its leases" if renewal else "reconnect"
        within = min(schedule.every, max(0.05, self._lost_at(oldest) - now))
        if not await self._done(_nothing, purpose, within, renewal=renewal):
            return False
        schedule.reconnected()
        return True

    async def _done(
        self,
        work: Callable[[RenewalConnection], Awaitable[None]],
        purpose: str,
        within: float,
        *,
        renewal: bool = False,
    ) -> bool:
        """Was the work done within so many seconds? After a failure the connection is replaced."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(within):
                if self._conn is None or self._conn.is_closed:
                    self._conn = await self._connect()
                await work(self._conn)
        except (FlowFabricError, TimeoutError) as error:
            self._schedule.failed(began, time.monotonic(), renewal=renewal)
            why = _reason(error, within)
            facts = {"instance_id": self._instance, "error": why}
            log.warning("worker %s cannot %s: %s", self._instance, purpose, why, extra=facts)
            if renewal:
                self._count_failures()
            if self._conn is not None:
                self._conn.terminate()
                self._conn = None
            return False
        self._schedule.succeeded()
        return True

    async def _connect(self) -> RenewalConnection:
        """A connection that holds the lock before it is used for anything else."""
        conn = await open_renewals(self._target)
        if self._holds_lock:
            try:
                await self._hold_lock(conn)
            except BaseException:
                conn.terminate()
                raise
        return conn

    async def _hold_lock(self, conn: RenewalConnection) -> None:
        lock = await conn.hold_lock(
            self._instance, namespace=self._settings.namespace, on_end=self._wake_up
        )
        if not lock.held:
            self._holds_lock = False
            log.warning(
                "worker %s cannot hold its lock, as behind a pooler: if its process dies, its"
                " executions are claimable again when their leases expire, not before",
                self._instance,
            )
        elif lock.shared and not self._started.done():
            log.warning(
                "worker %s: another process holds the lock of this worker_instance_id; give each"
                " process its own, else the leases of a process that dies last until they expire",
                self._instance,
            )
        if not lock.registered:
            self._schedule.heartbeat_soon(time.monotonic())  # it registers again

    async def _renew(self, conn: RenewalConnection) -> None:
        sent_at = time.monotonic()
        due = self._held_leases.due(self._schedule.every / 2)
        if not due:
            self._schedule.renewed(sent_at)
            return
        settings = self._settings
        answers = await conn.renew(
            [attempt.lease for attempt in due],
            ttl=settings.lease_ttl,
            record=settings.lease_history == "full",
        )
        for attempt, refusal in zip(due, answers, strict=True):
            if refusal is None:
                attempt.renewed_at, attempt.failures = sent_at, 0
            else:
                self._refused(attempt, refusal)
        self._schedule.renewed(sent_at)

    async def _look(self, conn: RenewalConnection) -> None:
        """Find the leases that were ended by a decision elsewhere; the others are not extended."""
        began = time.monotonic()
        self._schedule.look_begins()
        try:
            held = [
                each
                for each in self._held_leases
                if not (each.lost or each.finished or each.gives_up)
            ]
            if held:
                refusals = await conn.find_lost_leases([attempt.lease for attempt in held])
                for attempt, refusal in zip(held, refusals, strict=True):
                    if refusal is not None:
                        self._refused(attempt, refusal)
        except BaseException:
            self._schedule.ask_for_look()  # by the next try
            raise
        self._schedule.looked(began, time.monotonic())

    def _count_failures(self) -> None:
        for attempt in self._held_leases:
            attempt.failures += 1
            LEASE_RENEWALS.add("err")
        self._mark_overdue_lost()

    def _mark_overdue_lost(self) -> None:
        """Count leases as lost before another worker can claim their executions."""
        before = time.monotonic() - _LOST_AFTER * self._settings.lease_ttl
        for attempt in self._held_leases:
            if attempt.renewed_at <= before and not attempt.lost:
                self._mark_lost(attempt, LeaseLost("no renewal succeeded in time"))

    def _oldest(self) -> float | None:
        """When the lease of a running handler that was renewed the longest ago was renewed."""
        return min(
            (
                attempt.renewed_at
                for attempt in self._held_leases
                if not attempt.lost and not attempt.finished
            ),
            default=None,
        )

    def _lost_at(self, oldest: float | None) -> float:
        """When the first lease counts as lost, unless a renewal succeeds."""
        return math.inf if oldest is None else oldest + _LOST_AFTER * self._settings.lease_ttl

    def _refused(self, attempt: RunningAttempt, refusal: Exception) -> None:
        if not attempt.gives_up:
            self._mark_lost(attempt, refusal)

    def _mark_lost(self, attempt: RunningAttempt, reason: Exception) -> None:
        if not attempt.finished:
            attempt.lost = True
            self._owner_loop.call_soon_threadsafe(self._on_lost, attempt, reason)

    async def _heartbeat(self, conn: RenewalConnection) -> None:
        settings, began = self._settings, time.monotonic()
        blocked = self._loop_watch.blocked_for()
        for _ in range(2):
            registered = await conn.heartbeat(
                self._instance,
                namespace=settings.namespace,
                stuck=dict(self._threads.stuck),
                unclaimed=sorted(self._threads.exhausted),
                loop_blocked=blocked,
            )
            if registered:
                break
            await conn.register(settings, self._instance, self._kinds)
            if self._holds_lock:
                await self._hold_lock(conn)
        self._schedule.heartbeat_sent(began)

    async def _mark_stopped(self) -> None:
        conn = self._conn
        try:
            async with asyncio.timeout(_MARK_STOPPED_WITHIN):
                if conn is None or conn.is_closed:
                    conn = await self._connect()
                await conn.mark_stopped(self._instance, namespace=self._settings.namespace)
                await conn.close()
        except (FlowFabricError, TimeoutError, OSError) as error:
            log.warning(
                "worker %s cannot be marked as stopped in the registry: %s",
                self._instance,
                _reason(error, _MARK_STOPPED_WITHIN),
            )
            if conn is not None:
                conn.terminate()


async def _nothing(_conn: RenewalConnection) -> None:
    """A connection is all that is needed."""


def _reason(error: Exception, within: float) -> str:
    """Why the database was of no use, as a log message says it."""
    if isinstance(error, TimeoutError):
        return f"no answer within {within:.3g} s"
    return f"{type(error).__name__}: {error}"
