"""Numbers that are read from the database: how much waits in each lane, and for how long."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from flowfabric.counters import (
    CANCEL_BACKLOG,
    EXECUTIONS,
    NOTIFY_LAG,
    OUTBOX_PENDING,
    QUEUE_AGE,
    READ_FROM_DATABASE,
    SCHEDULES,
)
from flowfabric.db.measure_notify_lag import measure_notify_lag
from flowfabric.engine.engine import Engine
from flowfabric.engine.lanes.read_gauges import Gauges
from flowfabric.errors import FlowFabricError

READ_EVERY: Final = 15.0
"""Seconds between two reads, however often is scraped."""
_STATES: Final = (
    "waiting",
    "delayed",
    "active",
    "suspended",
    "waiting_children",
    "rate_limited",
    "blocked",
)
_NOTIFIED_WITHIN: Final = 2.0

log: Final = logging.getLogger("flowfabric.metrics")


class DatabaseGauges:
    """Sets the levels that are the same in every process; one process of a deployment is enough."""

    def __init__(self, engine: Engine, *, every: float = READ_EVERY) -> None:
        self._engine, self._every = engine, every
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """The levels are at most `every` seconds old; while the database is away they are gone.

        Of several callers at once the first reads, and the others wait for it.
        """
        async with self._reading:
            if time.monotonic() - self._read_at < self._every:
                return
            self._read_at = time.monotonic()
            try:
                await self._read()
            except FlowFabricError as error:
                log.warning("cannot read gauges: %s", error, extra={"error": str(error)})
                for level in READ_FROM_DATABASE:
                    level.replace({})

    async def run(self) -> None:
        """Refresh for ever, until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._every)

    async def _read(self) -> None:
        engine = self._engine
        set_gauges(await engine.read_gauges())
        schedules = await engine.count_schedules()
        SCHEDULES.replace({(state.value,): count for state, count in schedules.items()})
        engine.listener.start()
        lag = await measure_notify_lag(engine.pool, engine.listener, within=_NOTIFIED_WITHIN)
        NOTIFY_LAG.replace({} if lag is None else {(): lag})


def set_gauges(read: Gauges) -> None:
    """The levels are what was read."""
    EXECUTIONS.replace(
        {(lane.lane_id, state): getattr(lane, state) for lane in read.lanes for state in _STATES}
    )
    QUEUE_AGE.replace(
        {
            (lane.lane_id,): 0.0
            if lane.oldest_waiting_since is None
            else max(0.0, (read.read_at - lane.oldest_waiting_since).total_seconds())
            for lane in read.lanes
        }
    )
    OUTBOX_PENDING.replace({(): read.undispatched})
    CANCEL_BACKLOG.replace({(): read.cancel_backlog})
