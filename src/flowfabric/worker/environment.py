"""What all tasks of a worker share: threads, child processes, process-scoped dependencies."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from flowfabric.worker.processes import ProcessPool
from flowfabric.worker.threads import HandlerThreads


class ProcessScope:
    """Dependencies made once for the worker process, and cleaned up when the worker stops."""

    def __init__(self) -> None:
        self.made: dict[tuple[object, ...], Any] = {}
        self.stack = contextlib.AsyncExitStack()
        self.lock = asyncio.Lock()

    async def close(self) -> None:
        self.made.clear()
        await self.stack.aclose()


class Environment:
    """Threads, child processes and process-scoped dependencies; closed when the worker stops."""

    def __init__(
        self, *, threads: HandlerThreads | None = None, processes: ProcessPool | None = None
    ) -> None:
        self.threads = threads or HandlerThreads()
        self.processes = processes
        self.process_scope = ProcessScope()

    async def close(self) -> None:
        """Stop threads and child processes, and clean up the process-scoped dependencies."""
        if self.processes is not None:
            await self.processes.close()
        self.threads.close()
        await self.process_scope.close()
