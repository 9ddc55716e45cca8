"""D9: many schedules: what they cost while none is due, and how fast all are fired."""

import argparse
import asyncio
import time
from typing import Final

import asyncpg
from asyncpg_fetch import fetchval
from common import Adapter, StalledError
from flowfabric_app import NAMESPACE, connected
from metering import Figures
from own_fleets import SETTLE, STATEMENTS, STATEMENTS_LIBRARY, TRANSACTIONS
from worker_process import WorkerProcess

from flowfabric.engine import ScheduleDefinition
from flowfabric.schedules.spec import spec_of

CREATED: Final = 1000
SOON_MS: Final = 2000

# The kind is one that no worker serves: what is measured is the firing alone.
KIND: Final = "unserved"

DUE: Final = f"""
UPDATE ff.schedule s SET next_fire_at_ms = d.at, anchor_ms = d.at
  FROM (SELECT name, ff.now_ms() + {SOON_MS} + row_number() OVER (ORDER BY name) % 1000 AS at
          FROM ff.schedule) AS d
 WHERE d.name = s.name
"""

FIRED: Final = "SELECT count(*) FROM ff.schedule_fire WHERE outcome = 'fired'"

TOOK: Final = """
SELECT (max(recorded_at_ms) - min(fire_at_ms)) / 1000.0::float8 FROM ff.schedule_fire
"""

LATE: Final = """
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY recorded_at_ms - fire_at_ms)::float8
  FROM ff.schedule_fire
"""

EXECUTIONS: Final = "SELECT count(*) FROM ff.exec_core"


async def schedules(_: Adapter, options: argparse.Namespace) -> Figures:
    """D9: one worker process, without schedules, with `n` that are not due, and when all are."""
    counter = STATEMENTS if await fetchval(options.dsn, STATEMENTS_LIBRARY) else TRANSACTIONS
    worker = await WorkerProcess.start(options)
    worker.go()
    try:
        without = await _statements(options, counter)
        await _create(options)
        idle = await _statements(options, counter)
        conn = await asyncpg.connect(options.dsn)
        await conn.execute(DUE)
        await conn.close()
        deadline = time.monotonic() + options.timeout
        while await fetchval(options.dsn, FIRED) < options.n:
            if time.monotonic() > deadline:
                raise StalledError
            await asyncio.sleep(0.1)
    except BaseException:
        worker.kill()
        raise
    await worker.stop()
    made = await fetchval(options.dsn, EXECUTIONS)
    if made != options.n:
        raise RuntimeError(f"{made} executions of {options.n} schedules")
    return {
        "seconds": await fetchval(options.dsn, TOOK),
        "late": await fetchval(options.dsn, LATE),
        "statements": max(0.0, idle - without),
        "statements_idle": idle,
    }


async def _statements(options: argparse.Namespace, counter: str) -> float:
    """Statements per second of the worker, once what was done before is counted."""
    await asyncio.sleep(SETTLE)
    began, counted = time.monotonic(), await fetchval(options.dsn, counter)
    await asyncio.sleep(options.seconds)
    # Without the first count itself.
    return (await fetchval(options.dsn, counter) - counted - 1) / (time.monotonic() - began)


async def _create(options: argparse.Namespace) -> None:
    definitions = [
        ScheduleDefinition(
            name=f"schedule-{number}",
            namespace=NAMESPACE,
            spec=spec_of(every=86_400),
            execution_kind=KIND,
        )
        for number in range(options.n)
    ]
    async with connected(options.dsn) as engine:
        for first in range(0, options.n, CREATED):
            await engine.create_schedules(definitions[first : first + CREATED])
    conn = await asyncpg.connect(options.dsn)
    await conn.execute("ANALYZE ff.schedule")
    await conn.close()
