"""Renews every held lease, in a thread and on a connection of its own.

A handler that blocks the event loop does not stop the renewals. A lease counts as lost when the
engine refuses to renew it, or when no renewal has succeeded for 0.8 TTL by this machine's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered, heartbeat_worker
from flowfabric.engine.workers.mark_worker_dead import mark_worker_dead
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.errors import FlowFabricError, LeaseLost
from flowfabric.worker.running_attempt import HeldLeases, RunningAttempt
from flowfabric.worker.settings import WorkerSettings
from flowfabric.worker.threads import HandlerThreads

log: Final = logging.getLogger("flowfabric.worker")
HEARTBEAT: Final = 10.0
"""Seconds between two heartbeats of a worker."""
_LOST_AFTER: Final = 0.8
"""The share of the TTL without a renewal after which a lease counts as lost."""
_FIRST_PAUSE: Final = 0.35
"""Seconds between the first two tries that fail: at most three tries a second."""
_MARK_STOPPED_WITHIN: Final = 2.0


class Renewer:
    """Runs from `start` to `stop`; calls `on_lost` on the event loop that created it."""

    def __init__(
        self,
        database: DatabaseConfig,
        settings: WorkerSettings,
        instance: str,
        kinds: tuple[str, ...],
        held_leases: HeldLeases,
        threads: HandlerThreads,
        on_lost: Callable[[RunningAttempt, Exception], None],
    ) -> None:
        self._database, self._settings = database, settings
        self._instance, self._kinds = instance, kinds
        self._held_leases, self._threads, self._on_lost = held_leases, threads, on_lost
        self._every = settings.lease_ttl / 3
        self._owner_loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._main, name="flowfabric renewer", daemon=True)
        self._started: Future[None] = Future()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._conn: Connection | None = None
        self._next_renewal = self._next_heartbeat = self._tried_at = 0.0
        self._heartbeat_now = False
        self._pause = 0.0

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
        self._next_renewal = time.monotonic() + self._every
        self._next_heartbeat = time.monotonic() + HEARTBEAT
        while not self._stopping.is_set():
            due_at = min(self._next_renewal, self._next_heartbeat)
            pause = min(due_at - time.monotonic(), self._seconds_until_loss())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, pause)):
                    await self._wake.wait()
            self._wake.clear()
            if self._heartbeat_now:
                self._heartbeat_now = False
                soon = max(time.monotonic(), self._tried_at + 1.0)
                due_at = self._next_heartbeat = min(self._next_heartbeat, soon)
            self._mark_overdue_lost()
            if not self._stopping.is_set() and time.monotonic() >= due_at:
                await self._renew_or_back_off()
        await self._mark_stopped()

    async def _renew_or_back_off(self) -> None:
        """Do what is due; after a failure the connection is replaced, and the next try waits.

        Leases that are lost meanwhile make no try more urgent: tries are at least `_FIRST_PAUSE`
        apart, however long the database is away.
        """
        now = self._tried_at = time.monotonic()
        within = min(self._every, max(0.05, self._seconds_until_loss()))
        try:
            async with asyncio.timeout(within):
                if self._conn is None or self._conn.is_closed():
                    self._conn = await self._connect()
                if now >= self._next_renewal:
                    await self._renew(self._conn)
                    self._next_renewal = now + self._every
                if now >= self._next_heartbeat:
                    await self._heartbeat(self._conn)
                    self._next_heartbeat = now + HEARTBEAT
            self._pause = 0.0
        except (FlowFabricError, TimeoutError) as error:
            self._pause = min(max(_FIRST_PAUSE, self._pause * 2), max(_FIRST_PAUSE, self._every))
            retry_at = time.monotonic() + self._pause * random.uniform(1.0, 1.5)
            self._next_renewal = max(self._next_renewal, retry_at)
            self._next_heartbeat = max(self._next_heartbeat, retry_at)
            log.warning(
                "worker %s cannot renew its leases: %s", self._instance, _reason(error, within)
            )
            self._count_failures()
            if self._conn is not None:
                self._conn.terminate()
                self._conn = None

    async def _connect(self) -> Connection:
        return await connect(self._database, role="renewer", limited=False)

    async def _renew(self, conn: Connection) -> None:
        due = self._held_leases.due(self._every / 2)
        if not due:
            return
        sent_at = time.monotonic()
        settings = self._settings
        answers = await renew(
            conn,
            [attempt.lease for attempt in due],
            ttl=settings.lease_ttl,
            record=settings.lease_history == "full",
        )
        for attempt, refusal in zip(due, answers, strict=True):
            if refusal is None:
                attempt.renewed_at, attempt.failures = sent_at, 0
            else:
                self._mark_lost(attempt, refusal)

    def _count_failures(self) -> None:
        for attempt in self._held_leases:
            attempt.failures += 1
        self._mark_overdue_lost()

    def _mark_overdue_lost(self) -> None:
        """Count leases as lost before another worker can claim their executions."""
        before = time.monotonic() - _LOST_AFTER * self._settings.lease_ttl
        for attempt in self._held_leases:
            if attempt.renewed_at <= before and not attempt.lost:
                self._mark_lost(attempt, LeaseLost("no renewal succeeded in time"))

    def _seconds_until_loss(self) -> float:
        """Seconds until the first lease counts as lost, unless a renewal succeeds."""
        renewed = [
            attempt.renewed_at
            for attempt in self._held_leases
            if not attempt.lost and not attempt.finished
        ]
        if not renewed:
            return HEARTBEAT
        return min(renewed) + _LOST_AFTER * self._settings.lease_ttl - time.monotonic()

    def _mark_lost(self, attempt: RunningAttempt, reason: Exception) -> None:
        if not attempt.finished:
            attempt.lost = True
            self._owner_loop.call_soon_threadsafe(self._on_lost, attempt, reason)

    async def _heartbeat(self, conn: Connection) -> None:
        settings = self._settings
        for _ in range(2):
            answer = await heartbeat_worker(
                conn,
                self._instance,
                namespace=settings.namespace,
                stuck_threads=self._threads.stuck,
                unclaimed_kinds=sorted(self._threads.exhausted),
            )
            if not isinstance(answer, WorkerNotRegistered):
                return
            await register(conn, settings, self._instance, self._kinds)

    async def _mark_stopped(self) -> None:
        try:
            async with asyncio.timeout(_MARK_STOPPED_WITHIN):
                conn = self._conn
                if conn is None or conn.is_closed():
                    conn = await self._connect()
                await mark_worker_dead(
                    conn, self._instance, reason="stopped", namespace=self._settings.namespace
                )
                await conn.close()
        except (FlowFabricError, TimeoutError, OSError) as error:
            log.warning(
                "worker %s cannot be marked as stopped in the registry: %s",
                self._instance,
                _reason(error, _MARK_STOPPED_WITHIN),
            )


def _reason(error: Exception, within: float) -> str:
    """Why the database was of no use, as a log message says it."""
    if isinstance(error, TimeoutError):
        return f"no answer within {within:.3g} s"
    return f"{type(error).__name__}: {error}"


async def register(
    conn: Connection, settings: WorkerSettings, instance: str, kinds: tuple[str, ...]
) -> None:
    """List this worker process in the registry; its heartbeats keep it listed."""
    await register_worker(
        conn,
        worker_id=settings.worker_id,
        worker_instance_id=instance,
        lanes=settings.lanes,
        capabilities=settings.capabilities,
        kinds=kinds,
        concurrency=settings.concurrency,
        liveness_ttl=3 * HEARTBEAT,
        namespace=settings.namespace,
    )
