"""What every part of the engine stands on: the pool, and one transaction for each call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from flowfabric.db.pool import Pool
from flowfabric.db.rows import Connection
from flowfabric.db.transaction import run, transact

T = TypeVar("T")


class Base:
    """The engine's pool, and how an operation runs on it."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._control_turn = asyncio.Lock()

    @property
    def partitions(self) -> int:
        return self.pool.config.partitions.num_flow_partitions

    async def _run(self, operation: str, body: Callable[[Connection], Awaitable[T]]) -> T:
        """A single statement, which is its own transaction."""
        return await run(self.pool, operation, body)

    async def _control(self, operation: str, body: Callable[[Connection], Awaitable[T]]) -> T:
        """Several statements of an operator, as if nobody else were there.

        One at a time in a process: two that touch the same index page would conflict for nothing.
        """
        async with self._control_turn:
            return await transact(self.pool, operation, body, isolation="serializable")

    async def _transact(self, operation: str, body: Callable[[Connection], Awaitable[T]]) -> T:
        """Several statements, all or none."""
        return await transact(self.pool, operation, body)
