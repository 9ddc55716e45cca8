"""Moves of executions: what submitters and workers do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from flowfabric.engine.facade.base import Base
from flowfabric.engine.lifecycle.cancel import Cancellation, Cancelled, cancel
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
from flowfabric.engine.lifecycle.wait_children import ChildAnswer, ChildWait, wait_children
from flowfabric.errors import Refusal


class Moves(Base):
    """Create, claim, and every write of a lease holder."""

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

    async def wait_children(self, waits: Sequence[ChildWait]) -> list[ChildAnswer | Refusal]:
        return await self._run("wait_children", lambda conn: wait_children(conn, waits))

    async def release(self, leases: Sequence[Lease]) -> list[Released | Refusal]:
        return await self._run("release", lambda conn: release(conn, leases))

    async def cancel(self, cancellations: Sequence[Cancellation]) -> list[Cancelled | Refusal]:
        return await self._run("cancel", lambda conn: cancel(conn, cancellations))
