"""Reads the gauges of the database in a thread, beside a worker or a supervisor."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Final, Self

from flowfabric.config import DatabaseConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError
from flowfabric.loop_thread import LoopThread
from flowfabric.metrics.gauges import READ_EVERY, DatabaseGauges

log: Final = logging.getLogger("flowfabric.metrics")


class GaugesThread:
    """Keeps the levels of `DatabaseGauges` current, by up to two connections of its own."""

    def __init__(self, database: DatabaseConfig, *, every: float = READ_EVERY) -> None:
        self._database, self._every = database, every
        self._loop = LoopThread("flowfabric gauges")
        self._task: asyncio.Task[None] | None = None
        self._loop.call(self._start)

    def close(self) -> None:
        """Stop reading, and close the connections."""
        self._loop.wait(self._stop())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            try:
                engine = await Engine.connect(self._database, role="metrics")
            except FlowFabricError as error:
                log.warning("cannot read gauges yet: %s", error, extra={"error": str(error)})
                await asyncio.sleep(self._every)
                continue
            try:
                await DatabaseGauges(engine, every=self._every).run()
            finally:
                await engine.close()
