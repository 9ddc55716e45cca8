"""The connection of a renewer: one to the database, or one to a server; both do the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from flowfabric.config import DatabaseConfig
from flowfabric.db.pool import connect
from flowfabric.db.rows import Connection
from flowfabric.engine.lifecycle.find_lost_leases import find_lost_leases
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.workers.heartbeat_worker import WorkerNotRegistered, heartbeat_worker
from flowfabric.engine.workers.hold_worker_lock import WorkerLock, hold_worker_lock
from flowfabric.engine.workers.mark_worker_dead import STOPPED, mark_worker_dead
from flowfabric.engine.workers.register_worker import register_worker
from flowfabric.errors import Refusal
from flowfabric.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from flowfabric.remote.address import ServerAddress
    from flowfabric.remote.engine import RemoteEngine

_AT_ONCE: Final = 1000
"""How many leases one request has."""


class RenewalConnection(Protocol):
    """What a renewer does by its connection."""

    @property
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self) -> None: ...
    async def renew(
        self, leases: Sequence[Lease], *, ttl: float, record: bool
    ) -> list[Refusal | None]: ...
    async def find_lost_leases(self, leases: Sequence[Lease]) -> list[Refusal | None]: ...
    async def heartbeat(
        self,
        instance: str,
        *,
        namespace: str,
        stuck: dict[str, int],
        unclaimed: list[str],
        loop_blocked: float = 0.0,
    ) -> bool: ...
    async def register(
        self, settings: WorkerSettings, instance: str, kinds: tuple[str, ...]
    ) -> None: ...
    async def mark_stopped(self, instance: str, *, namespace: str) -> None: ...
    async def hold_lock(
        self, instance: str, *, namespace: str, on_end: Callable[[], None]
    ) -> WorkerLock: ...


async def open_renewals(target: DatabaseConfig | ServerAddress) -> RenewalConnection:
    """A connection that nothing else uses."""
    if isinstance(target, DatabaseConfig):
        conn = await connect(target, role="renewer", limited=False, notice_lost_peer=True)
        return DatabaseRenewals(conn)
    from flowfabric.remote.engine import RemoteEngine

    return RemoteRenewals(await RemoteEngine.connect(target))


class DatabaseRenewals:
    """RenewalConnection on a database connection."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._watched = False

    @property
    def is_closed(self) -> bool:
        return self._conn.is_closed()

    def terminate(self) -> None:
        self._conn.terminate()

    async def close(self) -> None:
        await self._conn.close()

    async def renew(
        self, leases: Sequence[Lease], *, ttl: float, record: bool
    ) -> list[Refusal | None]:
        return await renew(self._conn, leases, ttl=ttl, record=record)

    async def find_lost_leases(self, leases: Sequence[Lease]) -> list[Refusal | None]:
        return await find_lost_leases(self._conn, leases)

    async def heartbeat(
        self,
        instance: str,
        *,
        namespace: str,
        stuck: dict[str, int],
        unclaimed: list[str],
        loop_blocked: float = 0.0,
    ) -> bool:
        """False if the worker is not in the registry."""
        answer = await heartbeat_worker(
            self._conn,
            instance,
            namespace=namespace,
            stuck_threads=stuck,
            unclaimed_kinds=unclaimed,
            loop_blocked=loop_blocked,
        )
        return not isinstance(answer, WorkerNotRegistered)

    async def register(
        self, settings: WorkerSettings, instance: str, kinds: tuple[str, ...]
    ) -> None:
        await register_worker(self._conn, **settings.registration(instance, kinds))

    async def mark_stopped(self, instance: str, *, namespace: str) -> None:
        await mark_worker_dead(self._conn, instance, reason=STOPPED, namespace=namespace)

    async def hold_lock(
        self, instance: str, *, namespace: str, on_end: Callable[[], None]
    ) -> WorkerLock:
        """Hold the lock of the worker process; `on_end` is called when the connection ends."""
        lock = await hold_worker_lock(self._conn, instance, namespace=namespace)
        if lock.held and not self._watched:
            self._watched = True
            self._conn.add_termination_listener(lambda _: on_end())
        return lock


class RemoteRenewals:
    """RenewalConnection by requests; the server cannot hold a lock for the worker process."""

    is_closed = False

    def __init__(self, engine: RemoteEngine) -> None:
        self._engine = engine
        self._closing: asyncio.Task[None] | None = None

    def terminate(self) -> None:
        self._closing = asyncio.ensure_future(self._engine.close())

    async def close(self) -> None:
        await self._engine.close()

    async def renew(
        self, leases: Sequence[Lease], *, ttl: float, record: bool
    ) -> list[Refusal | None]:
        found: list[Refusal | None] = []
        for at in range(0, len(leases), _AT_ONCE):
            found += await self._engine.renew(leases[at : at + _AT_ONCE], ttl=ttl, record=record)
        return found

    async def find_lost_leases(self, leases: Sequence[Lease]) -> list[Refusal | None]:
        found: list[Refusal | None] = []
        for at in range(0, len(leases), _AT_ONCE):
            found += await self._engine.find_lost_leases(leases[at : at + _AT_ONCE])
        return found

    async def heartbeat(
        self,
        instance: str,
        *,
        namespace: str,
        stuck: dict[str, int],
        unclaimed: list[str],
        loop_blocked: float = 0.0,
    ) -> bool:
        """False if the worker is not in the registry."""
        answer = await self._engine.heartbeat_worker(
            instance,
            namespace=namespace,
            stuck_threads=stuck,
            unclaimed_kinds=unclaimed,
            loop_blocked=loop_blocked,
        )
        return not isinstance(answer, WorkerNotRegistered)

    async def register(
        self, settings: WorkerSettings, instance: str, kinds: tuple[str, ...]
    ) -> None:
        await self._engine.register_worker(**settings.registration(instance, kinds))

    async def mark_stopped(self, instance: str, *, namespace: str) -> None:
        await self._engine.mark_worker_dead(instance, reason=STOPPED, namespace=namespace)

    async def hold_lock(
        self, instance: str, *, namespace: str, on_end: Callable[[], None]
    ) -> WorkerLock:
        return WorkerLock(held=False, shared=False, registered=True)
