"""Lanes and workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from flowfabric.engine.facade.base import Base
from flowfabric.engine.lanes.list_lanes import LaneCount, LanePage, count_by_lane, list_lanes
from flowfabric.engine.lanes.register_lanes import register_lanes
from flowfabric.engine.workers.heartbeat_worker import NotRegistered, heartbeat_worker
from flowfabric.engine.workers.list_worker_events import WorkerEvent, list_worker_events
from flowfabric.engine.workers.list_workers import WorkerPage, list_workers
from flowfabric.engine.workers.mark_worker_dead import Marked, mark_worker_dead
from flowfabric.engine.workers.register_worker import Refreshed, Registered, register_worker


class Registries(Base):
    """Which lanes there are, and which workers live."""

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

    async def list_worker_events(
        self, namespace: str, *, worker_instance_id: str | None = None, limit: int = 100
    ) -> list[WorkerEvent]:
        return await self._run(
            "list_worker_events",
            lambda conn: list_worker_events(
                conn, namespace, worker_instance_id=worker_instance_id, limit=limit
            ),
        )
