"""Renews every held lease, in a thread and on a connection of its own.

A handler that blocks the event loop does not stop the renewals. A lease counts as lost when the
engine refuses to renew it, or when no renewal has succeeded for 0.8 TTL by this machine's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
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

log: Final = logging.getLogger("flowfabric.worker")
HEARTBEAT: Final = 10.0
"""Seconds between two heartbeats of a worker."""
_LOST_AFTER: Final = 0.8
"""The share of the TTL without a renewal after which a lease counts as lost."""


class Renewer:
    """Runs from `start` to `stop`; calls `on_lost` on the event loop that created it."""

    def __init__(
        self,
        database: DatabaseConfig,
        settings: WorkerSettings,
        instance: str,
        kinds: tuple[str, ...],
        held_leases: HeldLeases,
        on_lost: Callable[[RunningAttempt, Exception], None],
    ) -> None:
        self._database, self._settings = database, settings
        self._instance, self._kinds = instance, kinds
        self._held_leases, self._on_lost = held_leases, on_lost
        self._every = settings.lease_ttl / 3
        self._owner_loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._main, name="flowfabric renewer", daemon=True)
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Mark the worker as stopped in the registry and end the thread."""
        self._stopping.set()
        if self._loop is not None and self._wake is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)
        await asyncio.to_thread(self._thread.join, 10.0)

    def _main(self) -> None:
        asyncio.run(self._renew_until_stopped())

    async def _renew_until_stopped(self) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        conn: Connection | None = None
        next_renewal = time.monotonic() + self._every
        next_heartbeat = time.monotonic() + HEARTBEAT
        while not self._stopping.is_set():
            pause = max(0.0, min(next_renewal, next_heartbeat) - time.monotonic())
            pause = max(0.0, min(pause, self._seconds_until_loss()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            if self._stopping.is_set():
                break
            self._mark_overdue_lost()
            now = time.monotonic()
            try:
                async with asyncio.timeout(min(self._every, max(0.05, self._seconds_until_loss()))):
                    if conn is None or conn.is_closed():
                        conn = await connect(self._database, role="renewer")
                    if now >= next_renewal:
                        await self._renew(conn)
                    if now >= next_heartbeat:
                        await self._heartbeat(conn)
            except (FlowFabricError, TimeoutError) as error:
                log.warning(
                    "worker %s cannot renew its leases: %s", self._instance, error or "timed out"
                )
                self._count_failures()
                if conn is not None:
                    conn.terminate()
                    conn = None
            finally:
                if now >= next_renewal:
                    next_renewal = now + (self._every if conn else self._every / 5)
                if now >= next_heartbeat:
                    next_heartbeat = now + HEARTBEAT
        await self._mark_stopped(conn)

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
        renewed = [attempt.renewed_at for attempt in self._held_leases if not attempt.lost]
        if not renewed:
            return HEARTBEAT
        return min(renewed) + _LOST_AFTER * self._settings.lease_ttl - time.monotonic()

    def _mark_lost(self, attempt: RunningAttempt, reason: Exception) -> None:
        if not attempt.finished:
            attempt.lost = True
            self._owner_loop.call_soon_threadsafe(self._on_lost, attempt, reason)

    async def _heartbeat(self, conn: Connection) -> None:
        settings = self._settings
        answer = await heartbeat_worker(conn, self._instance, namespace=settings.namespace)
        if isinstance(answer, WorkerNotRegistered):
            await register(conn, settings, self._instance, self._kinds)

    async def _mark_stopped(self, conn: Connection | None) -> None:
        try:
            async with asyncio.timeout(2.0):
                if conn is None or conn.is_closed():
                    conn = await connect(self._database, role="renewer")
                await mark_worker_dead(
                    conn, self._instance, reason="stopped", namespace=self._settings.namespace
                )
                await conn.close()
        except (FlowFabricError, TimeoutError, OSError) as error:
            log.warning(
                "worker %s cannot be marked as stopped in the registry: %s",
                self._instance,
                error or "timed out",
            )


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
