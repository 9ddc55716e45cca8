"""How a worker reaches its engine: connected to the database, or by requests to a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from flowfabric.config import DatabaseConfig
from flowfabric.db.listen import Listener
from flowfabric.db.waiter import Waiter
from flowfabric.reconcile.loop import reconcile
from flowfabric.worker.background import start
from flowfabric.worker.next_work import NextRemoteWork, NextWork
from flowfabric.worker.running_attempt import HeldLeases
from flowfabric.worker.settings import WorkerSettings
from flowfabric.worker.transaction_pool import NoTransactions, TransactionPool
from flowfabric.worker.watch_leases import watch_leases, watch_leases_at

if TYPE_CHECKING:
    from flowfabric.engine.engine import Engine
    from flowfabric.remote.address import ServerAddress
    from flowfabric.remote.engine import RemoteEngine

_POLL_LISTENING: Final = 3.0
_FIRST_PAUSE: Final = 0.05


def link_to(
    target: DatabaseConfig | ServerAddress, settings: WorkerSettings, instance: str
) -> DatabaseLink | ServerLink:
    """The link to a database or a server."""
    if isinstance(target, DatabaseConfig):
        return DatabaseLink(target, settings, instance)
    return ServerLink(target, settings, instance)


class DatabaseLink:
    """A worker with connections of its own: it listens for notifications, and sweeps."""

    def __init__(self, database: DatabaseConfig, settings: WorkerSettings, instance: str) -> None:
        # A worker that freezes inside a transaction must not lock an execution beyond its lease.
        idle_timeout = min(database.idle_transaction_timeout, settings.lease_ttl)
        self.target = msgspec.structs.replace(database, idle_transaction_timeout=idle_timeout)
        self._settings, self._instance = settings, instance
        self._engine: Engine | None = None
        self._listener = Listener(self.target)

    @property
    def calls_run_for(self) -> float:
        """A call may take effect up to so many seconds after it was sent."""
        return self.target.statement_timeout

    def transactions(self, held_leases: HeldLeases) -> TransactionPool:
        """The transactions of handlers."""
        role = f"handlers of {self._instance}"[:60]
        return TransactionPool(self.target, self._settings, held_leases, role=role)

    async def connect(self) -> Engine:
        """The engine, which the caller closes."""
        from flowfabric.engine.engine import Engine  # every operation: not before it is needed

        self._engine = await Engine.connect(self.target, role=f"worker {self._instance}"[:60])
        return self._engine

    def start(self, stack: contextlib.AsyncExitStack, on_lost: Callable[[], None]) -> None:
        """Watch the leases, and sweep, until the stack is closed."""
        assert self._engine is not None
        pool, listener = self._engine.pool, self._listener
        listener.start()
        stack.push_async_callback(listener.close)
        watching = watch_leases(pool, listener, self._instance, on_lost)
        start(stack, watching, "flowfabric leases")
        if self._settings.reconcile:
            start(stack, reconcile(pool, self._instance, listener), "flowfabric reconcile")

    def next_work(self, stack: contextlib.AsyncExitStack, stopping: asyncio.Event) -> NextWork:
        """Tells when to claim again."""
        assert self._engine is not None
        waiter = Waiter(
            self._engine.pool,
            self._listener,
            [f"lane:{lane}" for lane in self._settings.lanes],
            name=self._instance,
            poll=_POLL_LISTENING,
            first_pause=_FIRST_PAUSE,
        )
        stack.push_async_callback(waiter.close)
        return NextWork(self._engine, waiter, stopping)


class ServerLink:
    """A worker that lives on HTTP alone: the server listens, and sweeps."""

    def __init__(self, server: ServerAddress, settings: WorkerSettings, instance: str) -> None:
        self.target, self._settings, self._instance = server, settings, instance
        self._engine: RemoteEngine | None = None

    @property
    def calls_run_for(self) -> float:
        """A call may take effect up to so many seconds after it was sent."""
        return self.target.request_timeout

    def transactions(self, held_leases: HeldLeases) -> TransactionPool:
        """Handlers have none."""
        return NoTransactions(self._settings)

    async def connect(self) -> RemoteEngine:
        """The engine, which the caller closes."""
        from flowfabric.remote.engine import RemoteEngine

        self._engine = await RemoteEngine.connect(self.target)
        return self._engine

    def start(self, stack: contextlib.AsyncExitStack, on_lost: Callable[[], None]) -> None:
        """Watch the leases until the stack is closed."""
        assert self._engine is not None
        watching = watch_leases_at(self._engine, self._instance, on_lost)
        start(stack, watching, "flowfabric leases")

    def next_work(
        self, _stack: contextlib.AsyncExitStack, stopping: asyncio.Event
    ) -> NextRemoteWork:
        """Claims as soon as there is something."""
        return NextRemoteWork(stopping)
