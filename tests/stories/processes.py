"""Worker processes that a story starts, signals and kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncGenerator
from typing import Any, Self

from flowfabric.db.rows import Connection
from tests.worker.facts import count, eventually


class WorkerProcess:
    """One process that runs `tests.stories.shop`, or another module that takes the same."""

    def __init__(self, process: asyncio.subprocess.Process, instance: str) -> None:
        self._process, self.instance = process, instance

    @classmethod
    async def start(
        cls,
        dsn: str,
        instance: str,
        *,
        module: str = "tests.stories.shop",
        quiet: bool = False,
        **settings: Any,
    ) -> Self:
        """Start it; it may take a moment until it serves. A quiet one says nothing of itself."""
        arguments = json.dumps({"worker_instance_id": instance, **settings})
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            dsn,
            arguments,
            stderr=asyncio.subprocess.DEVNULL if quiet else None,
        )
        return cls(process, instance)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    def kill(self) -> None:
        """As the kernel does when memory runs out."""
        self._process.send_signal(signal.SIGKILL)

    def freeze(self) -> None:
        """As a debugger or a machine that is suspended does; its sockets stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def terminate(self) -> None:
        """As an orchestrator does before a new version."""
        self._process.send_signal(signal.SIGTERM)

    async def exit_code(self, within: float = 15.0) -> int:
        """How it ended."""
        return await asyncio.wait_for(self._process.wait(), within)


@contextlib.asynccontextmanager
async def workers(
    dsn: str, *instances: str, **settings: Any
) -> AsyncGenerator[list[WorkerProcess]]:
    """Processes of these names; whatever still runs after the block is killed.

    The list may be added to.
    """
    running = [await WorkerProcess.start(dsn, name, **settings) for name in instances]
    try:
        yield running
    finally:
        for process in running:
            if not process.ended:
                process.kill()
            await process.exit_code()


async def serving(db: Connection, number: int) -> None:
    """Wait until that many workers have registered."""

    async def registered() -> bool:
        return await db.fetchval("SELECT count(*) FROM ff.worker_registry") >= number

    await eventually(registered, within=20)


async def all_completed(db: Connection) -> bool:
    return await count(db) == await count(db, "completed")


async def worst_counts(db: Connection) -> tuple[int, int, int]:
    """The most attempts, retries and reclaims that any execution has."""
    row = await db.fetchrow(
        "SELECT max(total_attempt_count), max(retry_count), max(lease_reclaim_count)"
        "  FROM ff.execution"
    )
    assert row is not None
    return tuple(row)
