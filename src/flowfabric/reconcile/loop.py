"""Runs every sweep of the table periodically; any number of processes may do so at once."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final

from flowfabric.db.pool import Pool
from flowfabric.db.transaction import run, transact
from flowfabric.errors import FlowFabricError
from flowfabric.reconcile.sweeps import SWEEPS, Sweep

log: Final = logging.getLogger("flowfabric.reconcile")


async def reconcile(pool: Pool, sweeps: Sequence[Sweep] = SWEEPS) -> None:
    """Run the sweeps until cancelled; a failure is logged, and the sweep runs again when due."""
    async with asyncio.TaskGroup() as group:
        for sweep in sweeps:
            group.create_task(_run_periodically(pool, sweep), name=f"flowfabric {sweep.name}")


async def _run_periodically(pool: Pool, sweep: Sweep) -> None:
    while True:
        await asyncio.sleep(sweep.every * random.uniform(0.8, 1.2))
        try:
            await sweep_all(pool, sweep)
        except FlowFabricError as error:
            log.warning("sweep %s failed and runs again when due: %s", sweep.name, error)


async def sweep_all(pool: Pool, sweep: Sweep) -> int:
    """Run one sweep until no due rows are left; returns how many rows it moved."""
    total = 0
    while True:
        if sweep.check is None:
            moved = await run(pool, sweep.name, lambda conn: sweep.step(conn, sweep.batch))
        elif await run(pool, sweep.name, sweep.check):
            moved = await transact(pool, sweep.name, lambda conn: sweep.step(conn, sweep.batch))
        else:
            return total
        total += moved
        # A batch may be cut short by another limit; a check says whether due rows are left.
        if moved == 0 or (sweep.check is None and moved < sweep.batch):
            if total:
                log.debug("sweep %s moved %s rows", sweep.name, total)
            return total
