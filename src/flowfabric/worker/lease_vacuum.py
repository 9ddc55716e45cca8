"""Vacuums the leases and the queue each time this worker has ended some thousands of leases."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from flowfabric.errors import FlowFabricError
from flowfabric.worker.maintenance import vacuum_leases

if TYPE_CHECKING:
    from flowfabric.remote.engine_like import EngineLike

log: Final = logging.getLogger("flowfabric.worker")

EVERY: Final = 5_000
"""Leases that end between two vacuums."""


class LeaseVacuum:
    """Counts the leases that have ended."""

    def __init__(self, engine: EngineLike) -> None:
        self._engine = engine
        self._ended = 0
        self._due = asyncio.Event()

    def ended(self, count: int) -> None:
        """So many leases more have ended; a vacuum may be due."""
        self._ended += count
        if self._ended >= EVERY:
            self._ended = 0
            self._due.set()

    async def run(self) -> None:
        """Vacuum when it is due, until cancelled. What fails is left to the sweeps."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await vacuum_leases(self._engine)
            except FlowFabricError as error:
                log.debug("leases could not be vacuumed, left to the sweeps: %s", error)
