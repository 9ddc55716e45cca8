"""Every operation by its spec name, each in its own transaction: the seam all doors stand on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from flowfabric.config import DatabaseConfig
from flowfabric.db import boot
from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import run, transact
from flowfabric.engine.executions.attempts import Attempt, list_attempts
from flowfabric.engine.executions.describe import (
    ExecutionInfo,
    ExecutionSnapshot,
    describe_execution,
    read_execution_info,
    read_execution_state,
)
from flowfabric.engine.executions.list_executions import Page, list_executions
from flowfabric.engine.executions.outcomes import Outcome, get_execution_result, read_outcomes
from flowfabric.engine.executions.search import Search, SearchPage, search_executions
from flowfabric.engine.lanes.list_lanes import LaneCount, LanePage, count_by_lane, list_lanes
from flowfabric.engine.lanes.register_lanes import register_lanes
from flowfabric.engine.lifecycle.cancel import Cancellation, Cancelled, cancel
from flowfabric.engine.lifecycle.cancel_execution import OPERATOR, cancel_execution
from flowfabric.engine.lifecycle.claim import Claimant, Claimed, claim
from flowfabric.engine.lifecycle.complete import Completed, Completion, complete
from flowfabric.engine.lifecycle.create_execution import (
    Created,
    Duplicate,
    NewExecution,
    create_execution,
)
from flowfabric.engine.lifecycle.delay import Delayed, Rest, delay
from flowfabric.engine.lifecycle.fail import Failure, RetryScheduled, TerminalFailed, fail
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.engine.lifecycle.progress import progress
from flowfabric.engine.lifecycle.release import Released, release
from flowfabric.engine.lifecycle.renew import renew
from flowfabric.engine.workers.registry import (
    Marked,
    NotRegistered,
    Refreshed,
    Registered,
    WorkerPage,
    heartbeat_worker,
    list_workers,
    mark_worker_dead,
    register_worker,
)
from flowfabric.errors import Refusal
from flowfabric.ids import ExecutionId, PartitionKey
from flowfabric.states import PublicState

T = TypeVar("T")


class Engine:
    """The engine on one database. Many callers may share it; each call takes one connection."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    @classmethod
    async def connect(cls, config: DatabaseConfig, *, role: str = "client") -> Engine:
        """Open the pool and check that this code can work on this database."""
        pool = await Pool.open(config, role=role)
        try:
            async with pool.connection() as conn:
                await boot.check(conn, config.partitions)
        except BaseException:
            await pool.close()
            raise
        return cls(pool)

    async def close(self) -> None:
        await self.pool.close()

    @property
    def partitions(self) -> int:
        return self.pool.config.partitions.num_flow_partitions

    async def _run(self, operation: str, body: Callable[[Connection], Awaitable[T]]) -> T:
        return await run(self.pool, operation, body)

    # Moves of executions.

    async def create_execution(
        self, executions: Sequence[NewExecution], *, now: datetime | None = None
    ) -> list[Created | Duplicate]:
        return await self._run(
            "create_execution",
            lambda conn: create_execution(conn, executions, partitions=self.partitions, now=now),
        )

    async def claim(
        self, claimant: Claimant, *, ttl: float | timedelta, limit: int = 1
    ) -> list[Claimed]:
        return await self._run("claim", lambda conn: claim(conn, claimant, ttl=ttl, limit=limit))

    async def renew(
        self, leases: Sequence[Lease], *, ttl: float | timedelta, tell: bool = False
    ) -> list[Refusal | None]:
        return await self._run("renew", lambda conn: renew(conn, leases, ttl=ttl, tell=tell))

    async def progress(
        self, lease: Lease, *, percent: int | None = None, message: str | None = None
    ) -> Refusal | None:
        return await self._run(
            "progress", lambda conn: progress(conn, lease, percent=percent, message=message)
        )

    async def complete(self, completions: Sequence[Completion]) -> list[Completed | Refusal]:
        return await self._run("complete", lambda conn: complete(conn, completions))

    async def fail(
        self, failures: Sequence[Failure]
    ) -> list[RetryScheduled | TerminalFailed | Refusal]:
        return await self._run("fail", lambda conn: fail(conn, failures))

    async def delay(self, rests: Sequence[Rest]) -> list[Delayed | Refusal]:
        return await self._run("delay", lambda conn: delay(conn, rests))

    async def release(self, leases: Sequence[Lease]) -> list[Released | Refusal]:
        return await self._run("release", lambda conn: release(conn, leases))

    async def cancel(self, cancellations: Sequence[Cancellation]) -> list[Cancelled | Refusal]:
        return await self._run("cancel", lambda conn: cancel(conn, cancellations))

    async def cancel_execution(
        self,
        execution_id: ExecutionId,
        *,
        reason: str,
        source: str = OPERATOR,
        lease_epoch: int | None = None,
        lease_id: UUID | None = None,
    ) -> Cancelled:
        return await transact(
            self.pool,
            "cancel_execution",
            lambda conn: cancel_execution(
                conn,
                execution_id,
                reason=reason,
                source=source,
                lease_epoch=lease_epoch,
                lease_id=lease_id,
            ),
            isolation="serializable",
        )

    # Reads.

    async def describe_execution(self, execution_id: ExecutionId) -> ExecutionSnapshot | None:
        return await self._run("describe", lambda conn: describe_execution(conn, execution_id))

    async def read_execution_state(self, execution_id: ExecutionId) -> PublicState | None:
        return await self._run("state", lambda conn: read_execution_state(conn, execution_id))

    async def read_execution_info(self, execution_id: ExecutionId) -> ExecutionInfo | None:
        return await self._run("info", lambda conn: read_execution_info(conn, execution_id))

    async def get_execution_result(self, execution_id: ExecutionId) -> bytes | None:
        return await self._run("result", lambda conn: get_execution_result(conn, execution_id))

    async def read_outcomes(self, executions: Sequence[ExecutionId]) -> dict[ExecutionId, Outcome]:
        return await self._run("outcomes", lambda conn: read_outcomes(conn, executions))

    async def list_attempts(self, execution_id: ExecutionId) -> list[Attempt]:
        return await self._run("attempts", lambda conn: list_attempts(conn, execution_id))

    async def list_executions(
        self, partition: PartitionKey, *, cursor: ExecutionId | None = None, limit: int = 100
    ) -> Page:
        return await self._run(
            "list", lambda conn: list_executions(conn, partition, cursor=cursor, limit=limit)
        )

    async def search_executions(
        self, search: Search, *, cursor: str | None = None, limit: int = 50
    ) -> SearchPage:
        return await self._run(
            "search", lambda conn: search_executions(conn, search, cursor=cursor, limit=limit)
        )

    # Lanes and workers.

    async def register_lanes(self, lanes: Sequence[str], *, registered_by: str) -> None:
        await self._run(
            "register_lanes", lambda conn: register_lanes(conn, lanes, registered_by=registered_by)
        )

    async def list_lanes(self, *, cursor: str | None = None, limit: int = 100) -> LanePage:
        return await self._run(
            "list_lanes", lambda conn: list_lanes(conn, cursor=cursor, limit=limit)
        )

    async def count_by_lane(self) -> list[LaneCount]:
        return await self._run("count_by_lane", count_by_lane)

    async def register_worker(
        self,
        *,
        worker_id: str,
        worker_instance_id: str,
        lanes: Sequence[str],
        capabilities: Sequence[str] = (),
        kinds: Sequence[str] = (),
        concurrency: int = 1,
        liveness_ttl: float | timedelta,
        namespace: str = "default",
    ) -> Registered | Refreshed:
        return await self._run(
            "register_worker",
            lambda conn: register_worker(
                conn,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                lanes=lanes,
                capabilities=capabilities,
                kinds=kinds,
                concurrency=concurrency,
                liveness_ttl=liveness_ttl,
                namespace=namespace,
            ),
        )

    async def heartbeat_worker(
        self, worker_instance_id: str, *, namespace: str = "default"
    ) -> Refreshed | NotRegistered:
        return await self._run(
            "heartbeat_worker",
            lambda conn: heartbeat_worker(conn, worker_instance_id, namespace=namespace),
        )

    async def mark_worker_dead(
        self, worker_instance_id: str, *, reason: str, namespace: str = "default"
    ) -> Marked | NotRegistered:
        return await self._run(
            "mark_worker_dead",
            lambda conn: mark_worker_dead(
                conn, worker_instance_id, reason=reason, namespace=namespace
            ),
        )

    async def list_workers(
        self, namespace: str, *, after: str | None = None, limit: int = 1000
    ) -> WorkerPage:
        return await self._run(
            "list_workers", lambda conn: list_workers(conn, namespace, after=after, limit=limit)
        )
