"""Children of a running execution: start them, and see how far they have come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from flowfabric.engine.facade.base import Base
from flowfabric.engine.flows.read_wait import Wait, read_wait
from flowfabric.engine.flows.read_window import Window, read_window
from flowfabric.engine.flows.spawn_children import spawn_apart, spawn_children
from flowfabric.engine.lifecycle.create_execution import NewExecution
from flowfabric.engine.lifecycle.lease import Lease
from flowfabric.ids import ExecutionId
from flowfabric.joins import JoinPolicy


class Children(Base):
    """What the holder of a lease starts beside itself."""

    async def spawn_children(
        self,
        lease: Lease,
        children: Sequence[NewExecution],
        *,
        wait: UUID | None,
        policy: JoinPolicy | None = None,
    ) -> Wait | None:
        return await self._transact(
            "spawn_children",
            lambda conn: spawn_children(
                conn, lease, children, wait=wait, policy=policy, partitions=self.partitions
            ),
        )

    async def spawn_apart(self, lease: Lease, children: Mapping[UUID, NewExecution]) -> None:
        await self._transact(
            "spawn_apart",
            lambda conn: spawn_apart(conn, lease, children, partitions=self.partitions),
        )

    async def read_window(self, lease: Lease, waits: Mapping[UUID, ExecutionId]) -> Window:
        return await self._transact("read_window", lambda conn: read_window(conn, lease, waits))

    async def read_wait(self, wait: ExecutionId) -> Wait:
        return await self._run("read_wait", lambda conn: read_wait(conn, wait))
